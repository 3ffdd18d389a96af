"""A disk that is full when DVC moves an output into its cache: DVC calls that success, Darkroom says so and stops."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dag.sandbox import NOTHING, Sandbox
from dag.test_refusals import refused

# Stands for the disk: whatever would be copied into the cache for outputs fails as it does on a full one.
FULL = """
import errno, os, sys
def watch(event, arguments):
    if event == "open" and isinstance(arguments[0], (str, bytes)) and isinstance(arguments[2], int):
        path, writes = os.fsdecode(arguments[0]), arguments[2] & (os.O_WRONLY | os.O_RDWR)
        if writes and f"{os.sep}.dvc{os.sep}cache{os.sep}files" in path:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
sys.addaudithook(watch)
"""
CHANGE = {"catalog": {"grid_images": 2}}  # other bytes of samples/catalog, which `report` reads, and nothing else
SENTENCE = "DVC could not move samples/catalog into its cache, as where a disk is full"


@contextmanager
def full_disk(sandbox: Sandbox) -> Iterator[None]:
    """Let no program of the block write into DVC's cache of outputs."""
    folder = sandbox.root.parent / "full"
    folder.mkdir(exist_ok=True)
    scripts = [folder / "sitecustomize.py", sandbox.root / "src/sitecustomize.py"]  # Snakemake's rules name src alone
    for script in scripts:
        script.write_text(FULL)
    sandbox.environment["PYTHONPATH"] = str(folder)
    try:
        yield
    finally:
        del sandbox.environment["PYTHONPATH"]
        scripts[1].unlink()


def stopped(sandbox: Sandbox, *command: str) -> str:
    """Run a command on the full disk, which must fail, and return what it printed."""
    with full_disk(sandbox):
        done = subprocess.run(
            command,
            cwd=sandbox.root,
            env=sandbox.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
    assert done.returncode != 0, done.stdout
    return done.stdout


def dvc(sandbox: Sandbox, *arguments: str) -> str:
    """Run DVC, which must say that all is well, and return what it printed."""
    with full_disk(sandbox):
        printed = sandbox.dvc(*arguments)
    assert "failed to transfer" in printed and "No space left" in printed, printed
    return printed


def test_snakemake_stops_and_begins_there_again(fresh: Sandbox) -> None:
    fresh.edit(CHANGE)
    with fresh.bodies() as ran:
        assert SENTENCE in stopped(fresh, "snakemake", "--cores", "2", "samples/catalog")
    assert ran == ["catalog"]
    with fresh.bodies() as ran:
        fresh.snakemake("samples/catalog")
    assert ran == ["catalog"] and fresh.stale("catalog") == set()


def test_dvc_stops_before_the_next_stage_and_a_commit_keeps_the_work(fresh: Sandbox) -> None:
    fresh.edit(CHANGE)
    with fresh.bodies() as ran:
        assert SENTENCE in stopped(fresh, "dvc", "repro")
    assert ran == ["catalog"]
    with fresh.bodies() as ran:
        fresh.dvc("commit", "catalog")
        fresh.dvc("repro")
    assert ran == ["report"]
    fresh.assert_nothing_to_do()


def test_what_nobody_noticed_is_noticed_by_snakemake_and_the_doctor(fresh: Sandbox) -> None:
    fresh.edit(CHANGE)
    dvc(fresh, "repro", "--single-item", "catalog")
    assert SENTENCE in refused(fresh, "snakemake", "--dry-run")
    doctor = subprocess.run(
        ["python", "-m", "darkroom", "doctor"],
        cwd=fresh.root,
        env=fresh.environment | {"PYTHONPATH": "src"},
        capture_output=True,
        text=True,
    )
    assert "samples/catalog: not in DVC's cache" in doctor.stdout
    fresh.dvc("commit", "catalog")
    fresh.dvc("repro")
    assert NOTHING in fresh.snakemake("--dry-run")


def test_a_training_keeps_its_state_until_its_weights_are_in_the_cache(fresh: Sandbox) -> None:
    fresh.edit({"train_extractor": {"training": {"seed": 7}}})
    dvc(fresh, "repro", "--single-item", "train_extractor")
    with fresh.bodies() as ran:
        fresh.dvc("repro", "--single-item", "train_extractor")  # without a commit: DVC removes it and makes it again
    assert ran == ["train_extractor"]
    assert "resumes at image 64 of 64" in (fresh.root / "logs/train_extractor.log").read_text()
    assert Path(fresh.root, "models/extractor/manifest.json").is_file()
