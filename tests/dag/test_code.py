"""What an edit of the code makes stale: what runs it, and nothing where nothing but words or layout changed."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import pytest
import yaml

from dag.long_training import LONG, TRAIN, checkpoints, resumed_at, told, wait_until
from dag.sandbox import ENGINES, NOTHING, Sandbox
from darkroom.dag.fingerprint.stages import Fingerprint, changes, fingerprints, undeclared
from darkroom.dag.stages import STAGES
from darkroom.errors import DarkroomError
from darkroom.params.stage import read_yaml

ROOT = Path(__file__).resolve().parents[2]
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

    recipe, before = "models/evaluators/extractor.py", furthest(fresh)
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


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of the source."""
    folder = tmp_path / "src"
    for path in (ROOT / "src/darkroom").rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts:
            target = folder / path.relative_to(ROOT / "src")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(path.read_bytes())
    return folder


def of(folder: Path, kind: str) -> dict[str, Fingerprint]:
    return fingerprints(
        [stage for stage in STAGES if stage != "code"],
        {"train_tokenizer": {"kind": kind}, "train_generator": {"kind": "dit"}},
        folder,
    )


@cache
def unchanged(kind: str) -> dict[str, Fingerprint]:
    return of(ROOT / "src", kind)


def stale(tree: Path, kind: str = "kl") -> set[str]:
    """Return the fingerprints that differ from those of this clone."""
    before, after = unchanged(kind), of(tree, kind)
    return {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}


def append(tree: Path, *modules: str) -> None:
    for module in modules:
        path = tree / "darkroom" / module
        path.write_text(path.read_text() + "\n\nMORE = 1\n")


DIT = {"train_classifier", "train_distilled", "train_generator", "models/generator", "sample_generator"}
TOKENIZER = {"train_tokenizer", "models/tokenizer"}
BESIDE = {f"score_{name}" for name in ("generator", "tokenizer_samples", "decoder", "text")}  # with real images beside


@pytest.mark.parametrize(
    ("modules", "kind", "names"),
    [
        (["models/generators/dit/network.py"], "kl", DIT),
        (["models/generators/dit/recipe.py"], "kl", {"train_generator"}),
        (["models/generators/distilled.py"], "kl", {"train_distilled"}),
        (["models/tokenizers/kl/recipe.py"], "kl", {"train_tokenizer"}),
        (["models/tokenizers/kl/network.py"], "kl", TOKENIZER),
        (["models/tokenizers/kl/network.py"], "pretrained", TOKENIZER),
        (
            ["models/tokenizers/kl/network.py", "models/tokenizers/kl/recipe.py", "models/tokenizers/kl/settings.py"],
            "vq_ar",
            set(),
        ),
        (
            [
                "models/tokenizers/vqgan/network.py",
                "models/tokenizers/vqgan/recipe.py",
                "models/tokenizers/vqgan/settings.py",
            ],
            "kl",
            set(),
        ),
        (
            [
                "models/tokenizers/dvae/tokenizer.py",
                "models/tokenizers/vq_ar/network.py",
                "models/tokenizers/dvae/recipe.py",
                "models/tokenizers/dvae/settings.py",
            ],
            "kl",
            set(),
        ),
        (
            [
                "models/tokenizers/vqgan/network.py",
                "models/tokenizers/vqgan/recipe.py",
                "models/tokenizers/vqgan/settings.py",
            ],
            "vqgan",
            TOKENIZER,
        ),
        (["models/tokenizers/kl/settings.py", "models/tokenizers/kl/network.py"], "kl", set()),
        (["data/catalog_writer.py"], "kl", {"catalog", *BESIDE}),
        (["cli.py", "check/check.py", "runner.py", "training/saver.py", "params/run.py"], "kl", set()),
        (["report/page.py"], "kl", {"report"}),
        (["environment.py"], "kl", {stage for stage in STAGES if stage != "code"}),
    ],
)
def test_an_edit_reaches_what_runs_it(tree: Path, modules: Iterable[str], kind: str, names: set[str]) -> None:
    append(tree, *modules)
    assert stale(tree, kind) == names


def test_a_data_file_beside_a_module_counts(tree: Path) -> None:
    page = tree / "darkroom/report/page.html"
    page.write_text(page.read_text() + "<!-- more -->")
    assert stale(tree) == {"report"}
    for name in (".page.html.swp", "page.html~", "#page.html#"):
        (page.parent / name).write_text("what an editor left")
    page.write_bytes((ROOT / "src/darkroom/report/page.html").read_bytes())
    assert stale(tree) == set()


def test_a_module_that_is_added_renamed_or_removed(tree: Path) -> None:
    (tree / "darkroom/models/generators/other.py").write_text("SIZE = 1\n")
    assert stale(tree) == set(), "nobody imports it"
    dit = tree / "darkroom/models/generators/dit/network.py"
    dit.write_text(f"{dit.read_text()}\n\ndef more():\n    from darkroom.models.generators import other\n")
    assert stale(tree) == DIT
    (tree / "darkroom/models/generators/other.py").unlink()
    assert stale(tree) == DIT
    dit.rename(dit.with_name("transformer.py"))
    for path in (tree / "darkroom").rglob("*.py"):
        path.write_text(path.read_text().replace("generators.dit.network ", "generators.dit.transformer "))
    assert stale(tree) == DIT
    told = changes(unchanged("kl")["models/generator"], of(tree, "kl")["models/generator"])
    assert (
        "darkroom.models.generators.dit.network: no longer used" in told
        and "darkroom.models.generators.dit.transformer: new" in told
    )


def test_a_new_kind_makes_nothing_stale(tree: Path) -> None:
    table = tree / "darkroom/models/kinds.py"
    new = '"new": ["new.settings:New", "new.network:New", "new.recipe:New", None, None],\n        '
    table.write_text(table.read_text().replace('"kl": [', f'{new}"kl": ['))
    assert stale(tree) == set()
    table.write_text(table.read_text().replace('"kl.network:KL', '"dvae.tokenizer:KL', 1))
    assert stale(tree) == {"models/tokenizer"}


def test_dvc_yaml_names_every_fingerprint_that_a_stage_needs() -> None:
    stages = [stage for stage in STAGES if stage != "code"]
    dvc = read_yaml(ROOT / "dvc.yaml")
    assert undeclared(stages, dvc, ROOT / "src") == []
    dvc["stages"]["sample_generator"]["deps"].remove("build/code/models/tokenizer.json")
    dvc["stages"]["code"]["params"].clear()
    told = "\n".join(undeclared(stages, dvc, ROOT / "src"))
    assert "sample_generator does not name build/code/models/tokenizer.json under `deps`" in told
    assert "code does not name train_tokenizer.kind under `params`" in told


def test_code_that_is_not_python_is_named_with_its_line(tree: Path) -> None:
    path = tree / "darkroom/models/generators/dit/network.py"
    path.write_text("def broken(:\n")
    with pytest.raises(DarkroomError, match=r"dit/network\.py, line 1, is not valid Python"):
        stale(tree)
