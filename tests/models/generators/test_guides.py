"""Folders of other runs that are to guide are looked at by `darkroom check`, before anything is sampled."""

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from darkroom.artifacts.manifest import write_manifest
from darkroom.check.check import check
from darkroom.errors import DarkroomError
from darkroom.models.generators.guides import require_guides
from helpers import DIGITS

ROOT = Path(__file__).parents[3]
OUTPUT = {"path": "linear", "flow_target": "velocity", "time_shift": 1.0}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def clone(here: None) -> None:
    for file in (DIGITS, ROOT / "dvc.yaml"):
        shutil.copy(file, file.name)
    for name in ("src", "docs"):
        Path(name).symlink_to(ROOT / name)
    Path("data").mkdir()
    shutil.copy(ROOT / "data/none", "data/none")


def change(**dit: object) -> None:
    values = yaml.safe_load(Path("params.yaml").read_text())
    values["sample_generator"]["dit"] |= dit
    Path("params.yaml").write_text(yaml.safe_dump(values))


def write(folder: str, kind: str, path: str = "linear") -> None:
    Path(folder).mkdir()
    write_manifest(Path(folder), kind, objective="flow", prediction={**OUTPUT, "path": path}, files={})


def test_what_fits_is_accepted(clone: None) -> None:
    write("guide", "generator")
    write("other", "classifier")
    change(guide="guide", classifier="other", classifier_scale=2.0)
    check()
    change(classifier="models/classifier")  # that `train_classifier` is to make
    check()


@pytest.mark.parametrize(
    ("key", "kind", "said"),
    [
        ("guide", "generator", "with `path` vp, but the generator with linear"),
        ("guide", "teacher", "describes 'teacher'"),
        ("guide", None, "which holds no manifest.json"),
    ],
)
def test_what_does_not_is_refused_by_folder_and_key(clone: None, key: str, kind: str | None, said: str) -> None:
    if kind:
        write("given", kind, "vp")
    else:
        Path("given").mkdir()
    change(**{key: "given"})
    with pytest.raises(DarkroomError) as error:
        check()
    assert said in str(error.value) and "given" in str(error.value) and "sample_generator.dit" in str(error.value)


@pytest.mark.parametrize(
    ("kind", "name", "other", "said"),
    [
        ("generator", "tokenizer", "0" * 64, "with `tokenizer` 000000"),
        ("generator", "latent_shape", [4, 8, 8], "with `latent_shape` 4, 8, 8, but the generator with 4, 4, 4"),
        ("generator", "latent_mean", [1.0], "with `latent_mean` 1.0"),
        ("generator", "latent_std", [2.0], "with `latent_std` 2.0"),
        ("generator", "classes", ["a", "c"], "with `classes` a, c, but the generator with a, b"),
        ("generator", "clip", "0" * 64, "with `clip` 000000"),
        ("generator", "objective", "gaussian", "with `objective` gaussian, but the generator with flow"),
        ("classifier", "classes", ["a", "c"], "with `classes` a, c, but the generator with a, b"),
    ],
)
def test_another_training_is_refused_by_what_differs(
    here: None, kind: str, name: str, other: object, said: str
) -> None:
    ours: dict[str, object] = {"latent_mean": [0.0], "latent_std": [1.0], "classes": ["a", "b"], "objective": "flow"}
    ours |= {"tokenizer": "1" * 64, "clip": "1" * 64, "latent_shape": [4, 4, 4], "prediction": OUTPUT}
    Path("given").mkdir()
    write_manifest(Path("given"), kind, **{**ours, name: other}, files={})
    key = "guide" if kind == "generator" else "classifier"
    sampling = SimpleNamespace(**{"guide": "data/none", "classifier": "data/none", key: "given"})
    with pytest.raises(DarkroomError) as error:
        require_guides("sample_generator.dit", sampling, ours)
    assert said in str(error.value) and f"`sample_generator.dit.{key}` is given" in str(error.value)
    write_manifest(Path("given"), kind, **ours, files={})
    require_guides("sample_generator.dit", sampling, ours)


def test_a_guided_variance_is_that_of_the_guide_network_too(here: None) -> None:
    said = {"schedule": "linear", "target": "eps", "variance_range": "linear"}
    ours = {"objective": "gaussian", "prediction": {**said, "variance": "learned_range"}}
    Path("given").mkdir()
    write_manifest(Path("given"), "generator", **{**ours, "prediction": {**said, "variance": "fixed_small"}}, files={})
    for guided in (False, True):
        sampling = SimpleNamespace(guide="given", classifier="data/none", guidance_variance=guided)
        if not guided:
            require_guides("sample_generator.dit", sampling, ours)
            continue
        with pytest.raises(DarkroomError, match=r"with `variance` fixed_small, but the generator with"):
            require_guides("sample_generator.dit", sampling, ours)


def test_a_folder_that_is_not_there_is_named_with_its_key(clone: None) -> None:
    change(guide="models/of-before")
    with pytest.raises(DarkroomError, match=r"sample_generator\.dit\.guide` is models/of-before, which does not"):
        check()
