"""What an edit of the code makes stale: what runs it, and nothing where nothing but words or layout changed."""

from collections.abc import Iterable
from functools import cache
from pathlib import Path

import pytest

from darkroom.dag.fingerprint.stages import Fingerprint, changes, fingerprints, undeclared
from darkroom.dag.stages import STAGES
from darkroom.errors import DarkroomError
from darkroom.params.stage import read_yaml

ROOT = Path(__file__).resolve().parents[2]


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
        (["models/generators/distilled/recipe.py"], "kl", {"train_distilled"}),
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
        (["models/tokenizers/pretrained/settings.py", "models/tokenizers/pretrained/network.py"], "kl", set()),
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
