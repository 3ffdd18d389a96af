"""Edits of the source: each stage whose bytes one changes is stale, and words and layout make nothing stale."""

import ast
import re
import shutil
from collections.abc import Iterable, Iterator
from copy import copy
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from darkroom.dag.fingerprint import following
from darkroom.dag.fingerprint.following import Sources
from darkroom.dag.fingerprint.modules import Module
from darkroom.dag.fingerprint.stages import Fingerprint, changes, fingerprints, undeclared
from darkroom.dag.stages import STAGES, TRAININGS
from darkroom.errors import DarkroomError
from darkroom.params.stage import read_yaml

SRC = Path(__file__).resolve().parents[3] / "src"
ALL = frozenset(stage for stage in STAGES if stage != "code")
SCORES = frozenset({"score_generator", "score_tokenizer_samples"})


@dataclass(frozen=True)
class Edit:
    """An edit of a file below src/darkroom.

    old, new: the text that is replaced, once; "" stands for the end of the file.
    changes: stages, or artifacts with code of their own, some of whose output it changes.
    only: all that may become stale; None: more than `changes` may.
    """

    file: str
    old: str
    new: str
    changes: frozenset[str] = frozenset()
    only: frozenset[str] | None = None


def of(*names: str) -> frozenset[str]:
    return frozenset(names)


EDITS = {
    # Bodies
    "a score's equation": Edit("metrics/frechet.py", "distance = means +", "distance = 2 * means +", SCORES),
    "a sampler's step": Edit(
        "diffusion/samplers.py", "times[:-1] * 1000 / 1000", "times[:-1] * 999 / 1000", of("models/generator")
    ),
    "a network's layer": Edit(
        "models/generators/dit/network.py",
        "self.linear(_modulate(self.norm(x), shift, scale))",
        "2 * self.linear(_modulate(self.norm(x), shift, scale))",
        of("train_generator", "models/generator"),
    ),
    "a loss": Edit(
        "models/tokenizers/kl/recipe.py",
        'losses["loss"] = others',
        'losses["loss"] = 2 * others',
        of("train_tokenizer"),
        of("train_tokenizer"),
    ),
    "what all JSON is written by": Edit("artifacts/atomic.py", "indent=2", "indent=1", ALL),
    "a seed": Edit("rng.py", 'f"{seed}/{stream}".encode()', 'f"{stream}/{seed}".encode()', of(*TRAININGS)),
    "what a checkpoint is written by": Edit(
        "training/checkpoint.py", "-len(text) % 8", "-len(text) % 16", only=of(*TRAININGS)
    ),
    # Constants
    "a number of rounds": Edit("rng.py", "_ROUNDS = 4", "_ROUNDS = 5", of("train_generator", "train_tokenizer")),
    "an entry of a table": Edit(
        "data/preparing.py", '"bicubic": Image.Resampling.BICUBIC', '"bicubic": Image.Resampling.BOX', of("ingest")
    ),
    "a name in the environment": Edit("environment.py", "{library}_NUM_THREADS", "{library}_NUM_THREAD", ALL, ALL),
    # Strings of `Kinds`
    "the recipe of the chosen kind": Edit(
        "models/kinds.py", '"kl.recipe:KLRecipe"', '"dvae.recipe:DVAERecipe"', of("train_tokenizer")
    ),
    "the sampler of the chosen kind": Edit(
        "models/kinds.py", '"dit.sample:DiTSampler"', '"pretrained.network:load_pretrained"', of("models/generator")
    ),
    # Decorators
    "a decorator that doubles": Edit(
        "metrics/frechet.py",
        "def frechet_distance(",
        "def _twice(function):\n    return lambda *values: 2 * function(*values)\n\n\n@_twice\ndef frechet_distance(",
        SCORES,
    ),
    "a decorator that keeps what it decorates": Edit(
        "metrics/frechet.py",
        "",
        "def _take(function):\n    torch.linalg.eigvalsh = function\n\n\n"
        "@_take\ndef kept(values):\n    return values.diagonal()\n",
        SCORES,
    ),
    # What makes each stage's parameters and threads
    "the shared section of a training": Edit(
        "params/stage.py", "with_shared(shared, sliced", "with_shared({}, sliced", of(*TRAININGS), ALL
    ),
    "the threads of a stage": Edit("params/stage.py", 'int(place["threads"])', '1 + int(place["threads"])', ALL, ALL),
    "how a key is looked up": Edit("params/stage.py", "value = value[name]", "value = value.get(name)", of(), ALL),
    # Module-level code
    # A training loads this module through one that is marked as without effect.
    "a method of torch": Edit(
        "metrics/moments.py", "", "torch.Tensor.square = torch.Tensor.abs\n", SCORES | of("train_generator")
    ),
    "a second binding": Edit("metrics/frechet.py", "", "frechet_distance = lambda *values: 0.0\n", SCORES),
    "a binding of another module": Edit(
        "metrics/moments.py", "", "torch.linalg.eigvalsh = lambda values: values.diagonal()\n", SCORES
    ),
    "the meaning of an imported name": Edit(
        "metrics/frechet.py",
        "from torch import Tensor",
        "from torch import Tensor\nfrom builtins import min as max",
        SCORES,
    ),
    # What no stage runs, and what has no effect
    "a new function": Edit("metrics/frechet.py", "", "def unused(x):\n    return x\n", only=of()),
    "a page": Edit("report/page.html", "", "<!-- more -->", of("report"), of("report")),
}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of the source."""
    folder = tmp_path / "src"
    shutil.copytree(SRC, folder, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


@pytest.fixture(scope="module", autouse=True)
def _read_once() -> Iterator[None]:
    """Read a module, and what its definitions are, once for all edits of others."""

    modules: dict[tuple[str, str], Module] = {}

    def read(name: str, path: Path) -> Module:
        key = name, path.read_text()
        if key not in modules:
            modules[key] = Module(name, path)
            modules[key].definitions = cache(modules[key].definitions)
        module = copy(modules[key])
        module.path = path
        return module

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(following, "Module", read)
        yield


def codes(folder: Path, kind: str = "kl") -> dict[str, Fingerprint]:
    params = {"train_tokenizer": {"kind": kind}, "train_generator": {"kind": "dit"}}
    return fingerprints(sorted(ALL), params, Sources(folder))


@cache
def unchanged(kind: str) -> dict[str, Fingerprint]:
    return codes(SRC, kind)


def stale(tree: Path, kind: str = "kl") -> set[str]:
    """Return the fingerprints that differ from those of this clone."""
    before, after = unchanged(kind), codes(tree, kind)
    return {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}


def edited(text: str, edit: Edit) -> str:
    assert edit.old in text, f"{edit.file} has no {edit.old!r} any more"
    return text.replace(edit.old, edit.new, 1) if edit.old else f"{text}\n\n{edit.new}"


@pytest.mark.parametrize("story", [story for story in EDITS if story != "a page"])  # which has a test of its own
def test_what_an_edit_changes_is_stale(tree: Path, story: str) -> None:
    edit = EDITS[story]
    path = tree / "darkroom" / edit.file
    path.write_text(edited(path.read_text(), edit))
    found = stale(tree)
    assert edit.changes <= found
    if edit.only is not None:
        assert found <= edit.only


def other_words(text: str) -> str:
    """Return a module with other docstrings and comments, laid out anew."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            node.body[0] = ast.Expr(ast.Constant("Other words."))
    marks = re.findall(r"^# No effect on any .*$", text, re.MULTILINE)
    return "\n".join([*marks, "# another comment", ast.unparse(tree)])


def test_words_and_layout_make_nothing_stale(tree: Path) -> None:
    for path in tree.rglob("*.py"):
        path.write_text(other_words(path.read_text()))
    assert stale(tree) == set()


def append(tree: Path, *modules: str) -> None:
    """Let modules do something when they are loaded."""
    for module in modules:
        path = tree / "darkroom" / module
        path.write_text(path.read_text() + "\n\nprint()\n")


DIT = {"train_classifier", "train_distilled", "train_generator", "models/generator", "sample_generator"}
TOKENIZER = {"train_tokenizer", "models/tokenizer"}
BESIDE = {f"score_{name}" for name in ("generator", "tokenizer_samples", "decoder", "text")}  # with real images beside


@pytest.mark.parametrize(
    ("modules", "kind", "names"),
    [
        (["models/generators/dit/network.py"], "kl", DIT),
        (["models/generators/dit/recipe.py"], "kl", {"train_generator"}),
        (["models/generators/dit/distilled.py"], "kl", {"train_distilled"}),
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
        (["data/catalog_writer.py"], "kl", {"catalog", *BESIDE}),
        (["cli.py", "check/check.py", "runner.py", "training/saver.py", "params/run.py"], "kl", set()),
        (["report/page.py"], "kl", {"report"}),
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
    page.write_bytes((SRC / "darkroom/report/page.html").read_bytes())
    assert stale(tree) == set()


def test_a_module_that_is_added_renamed_or_removed(tree: Path) -> None:
    (tree / "darkroom/models/generators/other.py").write_text("SIZE = 1\n")
    assert stale(tree) == set(), "nobody imports it"
    dit = tree / "darkroom/models/generators/dit/network.py"
    dit.write_text(f"{dit.read_text()}\n\nfrom darkroom.models.generators import other\n\nprint(other.SIZE)\n")
    assert stale(tree) == DIT
    (tree / "darkroom/models/generators/other.py").unlink()
    assert stale(tree) == DIT
    dit.rename(dit.with_name("transformer.py"))
    for path in (tree / "darkroom").rglob("*.py"):
        path.write_text(path.read_text().replace("generators.dit.network ", "generators.dit.transformer "))
    assert stale(tree) == DIT
    told = changes(unchanged("kl")["models/generator"], codes(tree)["models/generator"])
    assert (
        "darkroom.models.generators.dit.network: no longer used" in told
        and "darkroom.models.generators.dit.transformer: new" in told
    )


def test_a_new_kind_makes_nothing_stale(tree: Path) -> None:
    table = tree / "darkroom/models/kinds.py"
    new = '"new": {"settings": "new.settings:New", "recipe": "new.recipe:New"},\n        '
    table.write_text(table.read_text().replace('"kl": {', f'{new}"kl": {{'))
    assert stale(tree) == set()
    table.write_text(table.read_text().replace('"kl.network:KLAutoencoder', '"dvae.tokenizer:DiscreteVAE', 1))
    assert stale(tree) == {"models/tokenizer"}


def test_dvc_yaml_names_every_fingerprint_that_a_stage_needs() -> None:
    stages = [stage for stage in STAGES if stage != "code"]
    dvc = read_yaml(SRC.parent / "dvc.yaml")
    assert undeclared(stages, dvc, Sources(SRC)) == []
    dvc["stages"]["sample_generator"]["deps"].remove("build/code/models/tokenizer.json")
    dvc["stages"]["code"]["params"].clear()
    messages = "\n".join(undeclared(stages, dvc, Sources(SRC)))
    assert "sample_generator does not list build/code/models/tokenizer.json under `deps`" in messages
    assert "code does not list train_tokenizer.kind under `params`" in messages


def test_code_that_is_not_python_is_named_with_its_line(tree: Path) -> None:
    path = tree / "darkroom/models/generators/dit/network.py"
    path.write_text("def broken(:\n")
    with pytest.raises(DarkroomError, match=r"dit/network\.py, line 1, is not valid Python"):
        stale(tree)
