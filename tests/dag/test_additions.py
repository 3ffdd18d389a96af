"""A tokenizer and a generator more: a room, a line of the table of kinds and a section each; both engines run them."""

import json
import shutil
from functools import partial
from pathlib import Path

import pytest

from dag.sandbox import ENGINES, Sandbox, side_by_side

ADDITIONS = Path(__file__).resolve().parents[1] / "additions"
KINDS = "src/darkroom/models/kinds.py"
TOKENIZER = ["patches.settings:Patches", "patches.network:PatchTokenizer", "patches.recipe:PatchRecipe", None, None]
GENERATOR = ["normal.settings:Normal", "normal.recipe:NormalRecipe", "normal.sample:NormalSampler"]
GENERATOR += ["normal.settings:Sampling"]
Added = dict[str, tuple[Sandbox, list[str]]]  # by engine


def add(sandbox: Sandbox) -> None:
    """Add a tokenizer and a generator, and choose them."""
    table = sandbox.root / KINDS
    text = table.read_text()
    for family, name, line, before in (
        ("tokenizer", "patches", TOKENIZER, '"kl": ['),
        ("generator", "normal", GENERATOR, '"dit": ['),
    ):
        room = sandbox.root / f"src/darkroom/models/{family}s/{name}"
        shutil.copytree(ADDITIONS / family, room, ignore=shutil.ignore_patterns("__pycache__"))
        text = text.replace(before, f'"{name}": {line!r},\n        {before}')
    table.write_text(text)
    sandbox.edit(
        {
            "train_tokenizer": {"kind": "patches", "patches": {"patch": 4, "latent_channels": 4, "training": {}}},
            "train_generator": {"kind": "normal", "normal": {"training": {}}},
            "sample_generator": {"normal": {"temperature": 0.5}},
        }
    )


@pytest.fixture(scope="module")
def added(committed: Sandbox, tmp_path_factory: pytest.TempPathFactory) -> Added:
    """Copies in which each engine ran the additions, and the stages whose bodies ran."""

    def run(engine: str) -> tuple[Sandbox, list[str]]:
        sandbox = committed.copy(tmp_path_factory.mktemp(f"added-{engine}") / "clone")
        add(sandbox)
        with sandbox.bodies() as ran:
            sandbox.run(*ENGINES[engine])
        return sandbox, ran

    made = side_by_side({engine: partial(run, engine) for engine in ENGINES})
    return {engine: found.result() for engine, found in made.items()}


@pytest.mark.parametrize("engine", ENGINES)
def test_what_depends_on_them_runs_and_nothing_else(added: Added, engine: str) -> None:
    sandbox, ran = added[engine]
    encoded = {name for name in sandbox.stages() if name.startswith("encode_latents@")}
    names = {"train_tokenizer", "score_tokenizer", "sample_tokenizer", "train_generator", "sample_generator"}
    expected = names | encoded | {"score_generator", "report"}
    assert expected - {"sample_tokenizer"} <= set(ran) <= expected | {"score_tokenizer_samples"}
    assert len(ran) == len(set(ran))
    scores = json.loads((sandbox.root / "metrics/generator.json").read_text())
    assert scores["fd"] > 0 and 0 <= scores["label_accuracy"] <= 1
    assert json.loads((sandbox.root / "models/generator/manifest.json").read_text())["generator_kind"] == "normal"
    sandbox.assert_nothing_to_do()


def test_both_engines_make_the_same_bytes(added: Added) -> None:
    one, other = (
        sandbox.hashes("train_generator", "sample_generator", "score_generator") for sandbox, _ in added.values()
    )
    assert one == other


def test_each_is_a_room_a_line_and_a_section(added: Added) -> None:
    sandbox, _ = next(iter(added.values()))
    touched = sandbox.run(
        "git", "status", "--porcelain", "--untracked-files=normal", "--", "src", "params.yaml", "dvc.yaml"
    )
    assert {line[3:] for line in touched.splitlines()} == {
        KINDS,
        "params.yaml",
        "src/darkroom/models/generators/normal/",
        "src/darkroom/models/tokenizers/patches/",
    }
