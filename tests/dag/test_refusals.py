"""Bad input: one clear sentence, an exit code, and nothing lost."""

import ctypes
import os
import shutil
import subprocess
from functools import partial
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from dag.sandbox import Sandbox, side_by_side

CAP_DAC_OVERRIDE, PR_CAPBSET_DROP = 1, 24


def refused(sandbox: Sandbox, *command: str, **options) -> str:
    """Run a command that must fail, and return what it printed."""
    done = subprocess.run(
        command,
        cwd=sandbox.root,
        env=sandbox.environment | {"PYTHONPATH": "src"},
        capture_output=True,
        text=True,
        **options,
    )
    printed = done.stdout + done.stderr
    assert done.returncode != 0, printed
    assert "Traceback" not in printed, printed
    return printed


def stage(sandbox: Sandbox, *arguments: str, **options) -> str:
    before = sandbox.hashes()
    printed = refused(sandbox, "python", "-m", "darkroom", *arguments, **options)
    assert sandbox.hashes() == before
    return printed


def spoil(path: Path) -> None:
    """Change bits all over the second half of a file, which may be a read-only link into DVC's cache."""
    data = bytearray(path.read_bytes())
    for at in range(len(data) // 2, len(data), 16):
        data[at] ^= 1
    path.unlink()
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("heads: 2", "haeds: 2", "unknown key `train_generator.dit.model.haeds`; did you mean `heads`?"),
        ("width: 16", "width: -16", "`train_generator.dit.model.width` is -16"),
        ("sample_generator:", "sample_genrator:", "unknown key `sample_genrator`; did you mean `sample_generator`?"),
    ],
)
def test_bad_parameters_stop_both_engines_before_any_work(fresh: Sandbox, old, new, sentence):
    path = fresh.root / "params.yaml"
    before = fresh.hashes()
    path.write_text(path.read_text().replace(old, new, 1))
    with fresh.bodies() as ran:
        assert sentence in refused(fresh, "python", "-m", "darkroom", "check")
        assert sentence in refused(fresh, "snakemake", "--cores", "2")
        assert fresh.hashes() == before
        refused(fresh, "dvc", "repro")
    assert ran == []
    fresh.run("git", "checkout", "params.yaml")
    fresh.dvc("checkout")
    assert fresh.hashes() == before


def test_a_folder_that_is_not_writable_is_named_before_the_work(fresh: Sandbox):
    (fresh.root / "models").chmod(0o555)

    def without_override() -> None:  # root may write everywhere, unless it gives that up
        if os.geteuid() == 0:
            ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, CAP_DAC_OVERRIDE)

    printed = stage(fresh, "train_generator", preexec_fn=without_override)
    assert "cannot write models/generator" in printed and "images/s" not in printed


def test_a_file_where_a_folder_should_be_is_named(fresh: Sandbox):
    shutil.rmtree(fresh.root / "curves")
    (fresh.root / "curves").write_text("")
    printed = refused(fresh, "python", "-m", "darkroom", "train_generator")
    assert "cannot write curves/generator" in printed


def test_a_corrupted_shard_is_named_with_the_key(fresh: Sandbox):
    tar = fresh.root / "data/shards/second/train/00000.tar"
    data = bytearray(tar.read_bytes())
    for row in pq.ParquetFile(tar.with_name("index.parquet")).read_row_group(0).to_pylist():
        data[row["offset"] + row["size"] // 2] ^= 1
    tar.unlink()
    tar.write_bytes(data)
    printed = stage(fresh, "train_extractor")
    assert "data/shards/second/train/00000.tar" in printed and "corrupted" in printed and "digits-" in printed


def test_corrupted_latents_are_named(fresh: Sandbox):
    spoil(fresh.root / "data/latents/first/train/00000.safetensors")
    printed = stage(fresh, "train_generator")
    assert "data/latents/first/train/00000.safetensors: the latent of the image digits-" in printed
    assert "is corrupted" in printed


def test_a_tokenizer_that_does_not_fit_the_latents_is_refused(fresh: Sandbox):
    """Another seed gives another tokenizer; the latents of the first one stay."""
    fresh.edit({"train_tokenizer": {"training": {"seed": 1}}})
    fresh.run("env", "PYTHONPATH=src", "python", "-m", "darkroom", "train_tokenizer")
    told = side_by_side({name: partial(stage, fresh, name) for name in ("train_generator", "sample_generator")})
    assert "was encoded by another tokenizer" in told["train_generator"].result()
    assert "was trained on latents of another tokenizer" in told["sample_generator"].result()


def test_code_of_another_checkout_is_refused(fresh: Sandbox, by_dvc: Sandbox):
    environment = fresh.environment | {"PYTHONPATH": str(by_dvc.root / "src")}
    done = subprocess.run(
        ["python", "-m", "darkroom", "report"], cwd=fresh.root, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 1 and "is not the code of this folder" in done.stderr


def test_a_stage_survives_a_closed_terminal(fresh: Sandbox):
    """The reader of its output is gone after one line; the stage runs to its end all the same."""
    with fresh.bodies() as ran:
        command = "PYTHONPATH=src python -m darkroom train_extractor | head -n 1"
        done = subprocess.run(["bash", "-o", "pipefail", "-c", command], cwd=fresh.root, env=fresh.environment)
    assert done.returncode == 0 and ran == ["train_extractor"]
    assert "done in" in (fresh.root / "logs/train_extractor.log").read_text()
