"""What is lost comes back: from the cache without work, or by finishing what a killed run or a full disk stopped."""

import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from dag.sandbox import ENGINES, NOTHING, Sandbox

# Stands for a full disk: whatever would be copied into DVC's cache for outputs fails as it does on one.
FULL = """
import errno, os, sys
def watch(event, arguments):
    if event == "open" and isinstance(arguments[0], (str, bytes)) and isinstance(arguments[2], int):
        path, writes = os.fsdecode(arguments[0]), arguments[2] & (os.O_WRONLY | os.O_RDWR)
        if writes and f"{os.sep}.dvc{os.sep}cache{os.sep}files" in path:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
sys.addaudithook(watch)
"""
SENTENCE = "DVC could not move models/extractor into its cache, as when a disk is full"


@pytest.mark.parametrize("engine", ["dvc", pytest.param("snakemake", marks=pytest.mark.slow)])
def test_a_damaged_and_a_deleted_output_are_restored_without_work(toy: Sandbox, toy_made: Sandbox, engine: str) -> None:
    shard = toy.root / "data/shards/first/shard"
    shard.chmod(0o644)
    shard.write_bytes(b"damaged")
    shutil.rmtree(toy.root / "models/extractor")
    (toy.root / "metrics/generator.json").unlink()
    assert toy.ran(*ENGINES[engine]) == []
    assert toy.hashes() == toy_made.hashes() and toy.stale() == set()


def test_dvc_finishes_what_a_killed_snakemake_began(toy: Sandbox) -> None:
    """Snakemake's marks of the interrupted job go: it does not run again what DVC has finished."""
    toy.edit({"train_extractor": {"training": {"seed": 1}}})
    with toy.bodies() as ran, toy.held("score_generator", *ENGINES["snakemake"]) as run:
        os.killpg(run.pid, signal.SIGKILL)
    assert ran == ["train_extractor", "score_generator"]
    toy.snakemake("--unlock")
    assert any((toy.root / ".snakemake/incomplete").iterdir()), "Snakemake has marked nothing"
    assert toy.ran("dvc", "repro") == ["score_generator", "report"]
    assert NOTHING in toy.snakemake("--dry-run")


@contextmanager
def full_disk(sandbox: Sandbox) -> Iterator[None]:
    """Let no program of the block write into DVC's cache of outputs."""
    folder = sandbox.root.parent / "full"
    folder.mkdir(exist_ok=True)
    scripts = [folder / "sitecustomize.py", sandbox.root / "src/sitecustomize.py"]  # Snakemake's rules name src alone
    for script in scripts:
        script.write_text(FULL)
    own = sandbox.environment["PYTHONPATH"]
    sandbox.environment["PYTHONPATH"] = f"{folder}{os.pathsep}{own}"
    try:
        yield
    finally:
        sandbox.environment["PYTHONPATH"] = own
        scripts[1].unlink()


def stopped(sandbox: Sandbox, *command: str) -> list[str]:
    """Change the training, and run a command that must stop behind it, for the disk is full; return the bodies."""
    sandbox.edit({"train_extractor": {"training": {"seed": 1}}})
    with full_disk(sandbox), sandbox.bodies() as ran:
        assert SENTENCE in sandbox.fails(*command)
    return ran


@pytest.mark.slow
def test_snakemake_stops_where_the_disk_is_full_and_begins_there_again(toy: Sandbox) -> None:
    """A training keeps its state until its weights are in the cache; where it has one, Snakemake tries it again."""
    assert set(stopped(toy, *ENGINES["snakemake"])) == {"train_extractor"}
    assert toy.ran(*ENGINES["snakemake"]) == ["train_extractor", "score_generator", "report"]
    assert "resumes at image 64 of 64" in toy.log("train_extractor")


def test_dvc_stops_where_the_disk_is_full_and_a_commit_keeps_the_work(toy: Sandbox) -> None:
    """DVC calls it success: the next stage refuses to begin, and so does Snakemake."""
    assert stopped(toy, *ENGINES["dvc"]) == ["train_extractor"]
    assert SENTENCE in toy.fails(*ENGINES["snakemake"], "--dry-run")
    toy.dvc("commit", "train_extractor")
    assert toy.ran(*ENGINES["dvc"]) == ["score_generator", "report"]
    assert toy.stale() == set()
