"""The kind `none` of a generator: its stages write that there is nothing, and what asks for one says so."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from darkroom.artifacts.manifest import read_manifest
from darkroom.check.check import check, schema
from darkroom.cli import main
from darkroom.dag.fingerprint.following import Sources
from darkroom.dag.fingerprint.stages import SOURCE, fingerprints
from darkroom.params.section import validate
from darkroom.params.stage import stage_params
from darkroom.stages import sample_generator, score_generator, train_generator
from helpers import DIGITS

ROOT = Path(__file__).parents[2]
REASON = "`train_generator.kind` is none"
STAGES_OF = {
    "train_generator": train_generator,
    "sample_generator": sample_generator,
    "score_generator": score_generator,
}


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with params.yaml without a generator, and with no data: the stages need none."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(ROOT / "dvc.yaml", "dvc.yaml")
    for name in ("src", "docs"):
        Path(name).symlink_to(ROOT / name)
    Path("data").mkdir()
    Path("data/none").touch()
    edit({}, "none")
    return tmp_path


def edit(changes: dict[str, Any], kind: str) -> None:
    """Write params.yaml with a kind of generator, and changes of `sample_generator.dit`."""
    values = yaml.safe_load(DIGITS.read_text())
    values["train_generator"]["kind"] = kind
    values["sample_generator"]["dit"] |= changes
    Path("params.yaml").write_text(yaml.safe_dump(values))


def run(*stages: str) -> None:
    """Run bodies of stages with what params.yaml gives them."""
    for stage in stages or STAGES_OF:
        STAGES_OF[stage].run(validate(schema(stage), stage_params(stage)))  # type: ignore[attr-defined]


def files(folder: str) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in Path(folder).rglob("*") if path.is_file())


def written() -> dict[Path, bytes]:
    folders = ("models", "samples", "curves", "metrics", "cards")
    return {Path(folder, name): Path(folder, name).read_bytes() for folder in folders for name in files(folder)}


def test_the_stages_write_that_there_is_nothing(clone: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same bytes when they run again."""
    run()
    assert capsys.readouterr().out.splitlines() == [
        f"{REASON}: no generator is trained",
        f"{REASON}: no images",
        "samples/generator holds no images: no scores",
    ]
    assert files("models/generator") == files("samples/generator") == ["manifest.json"]
    model, samples = (read_manifest(Path(f"{place}/generator"), kind) for place, kind in PLACES)
    assert (model["trained"], model["reason"], samples["images"], samples["reason"]) == (False, REASON, 0, REASON)
    assert [json.loads(Path(f"{place}/generator.json").read_text()) for place in ("metrics", "cards")] == [{}, {}]
    assert files("curves/generator") and not any(name.endswith(".tsv") for name in files("curves/generator"))
    assert Path("curves/bits/bits.tsv").read_text() == "timestep\tbits\tbits_se\tx0_mse\teps_mse\n"
    before = written()
    run()
    assert written() == before


PLACES = (("models", "generator"), ("samples", "samples"))


@pytest.mark.parametrize(
    "words", [("sample", "--labels", "3"), ("sample", "--text", "a 3", "--by", "generator"), ("invert",)]
)
def test_nothing_is_sampled_by_hand(clone: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]) -> None:
    run("train_generator")
    for model in ("tokenizer", "clip"):
        shutil.copytree("models/generator", f"models/{model}")  # that there is one is asked first
    assert main([*words]) == 1
    assert f"{REASON}: choose one" in capsys.readouterr().err
    edit({}, "dit")
    assert main([*words]) == 1
    assert f"models/generator holds no generator, because {REASON}: choose" in capsys.readouterr().err


def test_nothing_is_exported(clone: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run("train_generator")
    assert main(["export"]) == 1
    assert f"models/generator holds no generator, because {REASON}: choose" in capsys.readouterr().err


def test_a_folder_without_a_generator_guides_none(clone: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run("train_generator")
    shutil.copytree("models/generator", "other")
    edit({"guide": "other"}, "dit")
    assert main(["check"]) == 1
    assert f"`sample_generator.dit.guide` is other, which was not trained, because {REASON}." in capsys.readouterr().err


def test_no_code_of_a_transformer_is_depended_on(clone: Path) -> None:
    """Neither its network nor its recipe: an edit of these makes nothing stale."""
    assert "fit each other" in check()
    sources, stages = Sources(SOURCE), ("train_generator", "sample_generator")
    with_one, without = (
        fingerprints(stages, {"train_tokenizer": {"kind": "kl"}, "train_generator": {"kind": kind}}, sources)
        for kind in ("dit", "none")
    )
    network = "darkroom.models.generators.dit.network"
    assert network in with_one["models/generator"] and network not in without["models/generator"]
    recipe = "darkroom.models.generators.dit.recipe"
    assert recipe in with_one["train_generator"] and recipe not in without["train_generator"]
