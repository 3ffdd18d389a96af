"""Every program of benchmarks/ imports and explains itself, and runs: in small where that takes seconds."""

import ast
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
LONG = (
    *(
        "ar_sampling",
        "code_transformers",
        "copiers",
        "embedding",
        "gpu",
        "ingest",
        "latent_reads",
        "loop_overhead",
        "optimizers",
        "saving",
    ),
    *("scores", "solver_orders", "starts", "waiting"),
)
SMALL = {
    "ar_sampling": ["--tokens", "16", "--images", "2", "--width", "32", "--depth", "1", "--rounds", "1"],
    "code_transformers": ["--width", "64", "--depth", "1", "--codes", "64", "--batch", "2", "--rounds", "1"],
    "coverage": ["--features", "4", "--images", "40", "--repetitions", "3", "--kernel", "20"],
    "copiers": ["--train", "60", "--images", "30", "--epochs", "1", "--cost", "20", "60"],
    "embedding": ["--images", "8", "--batch", "4", "--rounds", "1"],
    "engines": HELP,
    "generators": HELP,
    "gpu": ["--rows", "T/bf16,T/bare,T/diffusers", "--batch", "4"],
    "ingest": ["--images", "20", "--processes", "1"],
    "large_index": HELP,
    "large_no_op": HELP,
    "latent_reads": ["--images", "64", "--seconds", "0.05"],
    "loop_overhead": ["--turns", "2", "--updates", "2"],
    "memorising": HELP,
    "no_op": HELP,
    "objectives": HELP,
    "optimizers": ["--turns", "1", "--precision", "bf16"],
    "plan_accuracy": HELP,
    "real_images": HELP,
    "recipes": HELP,
    "saving": ["1.3M", "--saves", "1", "--seconds", "0.5"],
    "scores": ["--images", "200", "--features", "16", "--kid", "50", "--inception", "0"],
    "solver_orders": ["--doublings", "4", "--truth", "64", "--out", f"{tempfile.gettempdir()}/orders.png"],
    "spinning": HELP,
    "staleness": HELP,
    "starts": ["report", "--runs", "1"],
    "time_to_quality": HELP,
    "training_steps": HELP,
    "tuned_losses": HELP,
    "waiting": ["the DiT of the digits", "--updates", "1"],
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


def test_what_each_imports_exists():
    missing = []
    for name in SMALL:
        tree = ast.parse((ROOT / f"benchmarks/{name}.py").read_text())
        missing += [f"{name}: docstring"] * (not ast.get_docstring(tree))
        for each in ast.walk(tree):
            if isinstance(each, ast.ImportFrom) and each.module.startswith("darkroom"):
                missing += [f"{name}: {each.module}.{alias.name}" for alias in each.names if not there(each, alias)]
    assert missing == []


def there(imported, alias):
    """Return whether a name that is imported from a module exists in it, or below it as a module."""
    try:
        module = importlib.import_module(imported.module)
        return hasattr(module, alias.name) or importlib.import_module(f"{imported.module}.{alias.name}")
    except ImportError:
        return False


@pytest.mark.slow
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


@pytest.fixture
def recipes(tmp_path, monkeypatch):
    """Return the program `recipes`, for a folder of its own with params.yaml."""
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    program = importlib.import_module("recipes")
    (tmp_path / "params.yaml").write_bytes((ROOT / "params.yaml").read_bytes())
    monkeypatch.setattr(program, "ROOT", tmp_path)
    return program


def test_a_recipe_is_laid_over_the_parameters(recipes):
    training = {"images": 6400, "batch": 64, "warmup": 640, "learning_rate": 0.5}
    changes = {"train_generator.training": {"images": recipes.Factor(0.51), "learning_rate": recipes.Factor(2.0)}}
    found = recipes.changed({"train_generator": {"training": training}}, changes, 7, "train_generator")
    assert found == {  # 3,264 are whole batches of 64, 326.4 are not
        "train_generator": {"training": {"images": 3264, "batch": 64, "warmup": 320, "learning_rate": 1.0, "seed": 7}}
    }
    changes = {
        "train_tokenizer.kl.adversarial": {"start": recipes.Half("train_tokenizer")},
        "train_generator.training": {"batch": recipes.Factor(0.5)},
    }
    params = {"train_tokenizer": {"training": {"images": 901}}, "train_generator": {"training": {"images": 1000}}}
    found = recipes.changed(params, changes, 0, "train_generator")
    assert found["train_tokenizer"]["kl"]["adversarial"]["start"] == 450
    assert found["train_generator"]["training"]["batch"] == 32


def test_a_row_has_mean_and_error_over_the_seeds(recipes):
    rows = [
        {"recipe": "as it is", "seed": 0, "kid": 1.0, "fd": 4.0},
        {"recipe": "wsd", "seed": 0, "kid": 5.0, "kid_se": 0.25},
        {"recipe": "as it is", "seed": 1, "kid": 3.0, "fd": 4.0},
    ]
    assert recipes.table(rows, ("kid", "fd")).splitlines() == [
        "| recipe | seeds | kid | fd |",
        "|---|---|---|---|",
        "| as it is | 2 | 2 ± 1 | 4 ± 0 |",
        "| wsd | 1 | 5 ± 0.25 |  |",
    ]


def test_what_changes_nothing_is_left_out(recipes, tmp_path, monkeypatch, capsys):
    before = (tmp_path / "params.yaml").read_text()
    ran = []

    def repro(target, *others):
        ran.append((tmp_path / "params.yaml").read_text())
        return {"fd_debiased": 1.0}

    monkeypatch.setattr(recipes, "repro", repro)
    monkeypatch.setattr(recipes, "refusal", lambda: "")
    chosen = ["as it is", "wsd", "down-sampling by 8, 16 latent channels"]  # wsd is the default
    command = ["recipes.py", "generator", "--seeds", "1", "--out", str(tmp_path / "out.jsonl"), "--recipes", *chosen]
    monkeypatch.setattr(sys, "argv", command)
    recipes.main()
    assert len(ran) == 2 and "latent_channels: 16" in ran[1]
    assert (tmp_path / "params.yaml").read_text() == before
    out, err = capsys.readouterr()
    assert [line.split(" | ")[0] for line in out.splitlines()[2:]] == [f"| {chosen[0]}", f"| {chosen[2]}"]
    assert err == "wsd is left out: it changes nothing, as params.yaml sets the same.\n"
    monkeypatch.setattr(sys, "argv", [*command, "wsb"])
    with pytest.raises(SystemExit, match="no such recipe: wsb; there are: as it is; AdamW"):
        recipes.main()
