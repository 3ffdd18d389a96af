"""Every program of benchmarks/ imports and explains itself, and runs: in small where that takes seconds."""

import importlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from darkroom.data.latents import LatentShards
from darkroom.data.reader import ImageShards

ROOT = Path(__file__).resolve().parents[1]
HELP = ["--help"]  # a clone where everything is up to date, other packages, or minutes are needed for more
# In small they take more than six seconds of a core, so `make test` only asks them how they are called.
LONG = ("copiers", "gpu", "ingest", "loop_overhead", "optimizers", "saving", "scores", "waiting")
SMALL = {
    "ar_sampling": ["--tokens", "16", "--images", "2", "--width", "32", "--depth", "1", "--rounds", "1"],
    "coverage": ["--features", "4", "--images", "40", "--repetitions", "3", "--kernel", "20"],
    "copiers": ["--train", "60", "--images", "30", "--epochs", "1", "--cost", "20", "60"],
    "decoder_step": HELP,
    "embedding": ["--images", "8", "--batch", "4", "--rounds", "1"],
    "gpu": ["--sizes", "T", "--ways", "bf16,bare,diffusers", "--batch", "4"],
    "ingest": ["--images", "20", "--processes", "1"],
    "large_index": HELP,
    "large_no_op": HELP,
    "latent_reads": ["--images", "64", "--seconds", "0.05"],
    "loop_overhead": ["--turns", "2", "--updates", "2"],
    "memorising": HELP,
    "no_op": HELP,
    "objectives": HELP,
    "optimizers": ["--turns", "1"],
    "plan_accuracy": HELP,
    "real_images": HELP,
    "recipes": HELP,
    "saving": ["1.3M", "--saves", "1", "--seconds", "0.5"],
    "scores": ["--images", "200", "--features", "16", "--kid", "50", "--inception", "0"],
    "solver_orders": ["--doublings", "4", "--truth", "64", "--out", f"{tempfile.gettempdir()}/orders.png"],
    "spinning": HELP,
    "starts": ["report", "--runs", "1"],
    "time_to_quality": HELP,
    "tokenizer_steps": HELP,
    "waiting": ["the default DiT", "--updates", "1"],
}


def test_none_is_forgotten():
    assert {path.stem for path in (ROOT / "benchmarks").glob("*.py")} == set(SMALL)


# One process for all, since importing torch takes longer than explaining.
EXPLAIN = """
import contextlib, io, json, runpy, sys
sys.path.insert(0, "benchmarks")
said = {}
for name in sys.argv[1:]:
    sys.argv = [f"benchmarks/{name}.py", "--help"]
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.suppress(SystemExit):
        runpy.run_path(sys.argv[0], run_name="__main__")
    said[name] = out.getvalue()
print(json.dumps(said))
"""


def run(*command):
    environment = os.environ | {"PYTHONPATH": "src", "OMP_WAIT_POLICY": "PASSIVE"}
    done = subprocess.run([sys.executable, *command], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_each_explains_itself():
    said = json.loads(run("-c", EXPLAIN, *SMALL).splitlines()[-1])
    assert set(said) == set(SMALL)
    for name, text in said.items():
        assert text.startswith(f"usage: {name}.py") and len(text.splitlines()) >= 2, name


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name in LONG)) for name in SMALL if SMALL[name] != HELP]
)
def test_a_benchmark_runs(name):
    assert len(run(f"benchmarks/{name}.py", *SMALL[name]).splitlines()) >= 2


def test_the_large_data_set_is_read_as_any_other(tmp_path, monkeypatch):
    """In small; whole, it takes minutes."""
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    large = importlib.import_module("large_index")
    for name, value in (("PARTS", 2), ("SHARD", 3), ("TRAIN", 1)):
        monkeypatch.setattr(large, name, value)
    large.write(tmp_path)
    monkeypatch.chdir(tmp_path)
    Path("data").mkdir()
    for folder in ("shards", "latents"):
        Path(folder).rename(Path("data") / folder)
    assert len(ImageShards.open_parts(["p00", "p01"], "train")) == 9
    assert len(LatentShards.open_parts(["p00", "p01"], "train")) == 9
