"""What an edit of the code makes stale: what runs it, and nothing where nothing but words or layout changed."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from dag.long_training import LONG, TRAIN, checkpoints, resumed_at, told, wait_until
from dag.sandbox import ENGINES, NOTHING, Sandbox
from darkroom.params.stage import read_yaml

LOSS = ("models/tokenizers/kl/recipe.py", 'losses["loss"] = others', 'losses["loss"] = 1.0 * others')


def source(sandbox: Sandbox, module: str) -> Path:
    return sandbox.root / "src/darkroom" / module


def replace(sandbox: Sandbox, module: str, old: str, new: str) -> None:
    path = source(sandbox, module)
    text = path.read_text()
    assert old in text, f"{module} has no {old!r} any more"
    path.write_text(text.replace(old, new, 1))


def words_and_layout(sandbox: Sandbox) -> None:
    """Change docstrings, comments and layout in modules that nearly every stage runs, and reformat one."""
    for module in (
        "errors.py",
        "params/stage.py",
        "training/loop.py",
        "models/generators/dit/network.py",
        "metrics/frechet.py",
    ):
        path = source(sandbox, module)
        lines = path.read_text().splitlines(keepends=True)
        assert lines[0].startswith('"""')
        path.write_text('"""Changed. ' + "".join(lines)[3:] + "\n\n\n# another line\n")
    # Another formatter: narrow lines.
    path = source(sandbox, "models/tokenizers/kl/network.py")
    subprocess.run([sys.executable, "-m", "ruff", "format", "--line-length", "60", path], check=True)


@pytest.mark.parametrize("engine", ENGINES)
def test_words_and_layout_run_nothing(fresh: Sandbox, engine: str) -> None:
    words_and_layout(fresh)
    with fresh.bodies() as ran:
        fresh.run(*ENGINES[engine])
    assert ran == []
    fresh.assert_nothing_to_do()


def test_a_lock_without_the_code_gives_the_same_plan(fresh: Sandbox) -> None:
    """As one of before there was such a stage, or of another branch: DVC's answer of before it ran is not used."""
    lock = fresh.root / "dvc.lock"
    values = read_yaml(lock)
    del values["stages"]["code"]
    lock.write_text(yaml.safe_dump(values, sort_keys=False))
    assert NOTHING in fresh.snakemake("--dry-run")
    del values["stages"]["train_generator"]
    lock.write_text(yaml.safe_dump(values, sort_keys=False))
    fresh.edit({"train_generator": {"dit": {"model": {"depth": 2}}}})
    with fresh.bodies() as ran:
        fresh.snakemake()
    assert ran == ["train_generator", "train_distilled", "sample_generator", "score_generator", "report"]


def test_a_loss_runs_its_training_and_what_is_below(fresh: Sandbox) -> None:
    """The new loss is the old one, so that the weights are the same bytes and the rest is up to date after all."""
    replace(fresh, *LOSS)
    told = fresh.run(sys.executable, "-m", "darkroom", "why", "encode_latents@first")
    assert "encode_latents@first is stale" in told and "it waits for train_tokenizer, which is stale" in told
    assert "darkroom.models.tokenizers.kl.recipe: KLRecipe._pass changed" in told
    assert "train_extractor is up to date." in fresh.run(sys.executable, "-m", "darkroom", "why", "train_extractor")
    with fresh.bodies() as ran:
        fresh.snakemake()
    assert ran == ["train_tokenizer"]
    fresh.assert_nothing_to_do()


def train_and_kill(sandbox: Sandbox) -> str:
    """Train until there is a new checkpoint, kill all of it, and return the log."""
    (sandbox.root / "logs/train_extractor.log").unlink(missing_ok=True)
    before = checkpoints(sandbox)
    with sandbox.start(*TRAIN) as run:
        wait_until(lambda: bool(checkpoints(sandbox) - before), run)
        os.killpg(run.pid, signal.SIGKILL)
    return told(sandbox)


def furthest(sandbox: Sandbox) -> int:
    """Return the images of the furthest checkpoint of the code that ran last."""
    found = (sandbox.root / ".darkroom/state").glob("train_extractor-*/images-*")
    return max(int(folder.name.removeprefix("images-")) for folder in found)


def test_a_stopped_training_goes_on_after_an_edit_of_words_and_says_what_another_edit_costs(fresh: Sandbox) -> None:
    fresh.edit(LONG)
    train_and_kill(fresh)
    words_and_layout(fresh)
    second = train_and_kill(fresh)
    assert resumed_at(second) > 0 and "code has changed" not in second

    recipe, before = "models/evaluators/extractor/recipe.py", furthest(fresh)
    replace(fresh, recipe, "values.mean()", "values.mean() * 1.0")
    third = train_and_kill(fresh)
    assert resumed_at(third) == 0
    assert f"{recipe.removesuffix('.py').replace('/', '.')}: ExtractorRecipe.loss changed" in third
    assert "`run.changed_code` is restart: the " in third and "images trained before are left in" in third

    since = furthest(fresh)
    fresh.edit({"run": {"changed_code": "resume"}})
    fresh.run(*TRAIN)
    reached = resumed_at(told(fresh))
    assert reached == max(before, since) > resumed_at(second), "the furthest of both, though the edit had begun anew"
    manifest = json.loads((fresh.root / "models/extractor/manifest.json").read_text())
    assert manifest.get("code_changed_at", []) == ([reached] if before >= since else [])  # a machine may speed up
    assert fresh.stale("train_extractor") == set()
