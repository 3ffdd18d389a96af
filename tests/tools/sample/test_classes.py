"""`darkroom sample --labels`: an image is a function of class, seed and number, and what does not fit is refused."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from PIL import Image
from safetensors.torch import load_file, save_file

from darkroom.cli import main
from darkroom.models.generators.dit.sample import DiTSampler
from darkroom.tools.sample.classes import Overrides, numbers_of, settings_of
from helpers import DIGITS
from models.generators.models_made import enter, write_models

ROOT = Path(__file__).parents[3]
SIDE = 96 + 2  # of an image of 16 pixels, and the padding beside it


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the models, dvc.yaml, and a params.yaml of little work."""
    enter(tmp_path, monkeypatch)
    values = yaml.safe_load(DIGITS.read_text())
    values["run"] = {"device": "cpu"}
    values["sample_generator"]["common"]["threads"] = 1
    values["sample_generator"]["dit"]["steps"] = 2
    Path("params.yaml").write_text(yaml.safe_dump(values))
    write_models()
    return tmp_path


def draw(*words: str) -> list[list[np.ndarray]]:
    """Return the images of a grid, by row and column, (H, W, 3)."""
    assert main(["sample", "--out", "logs/x.png", *words]) == 0
    grid = np.asarray(Image.open("logs/x.png"))
    height = SIDE + 2 + 14 + 4  # image, padding, a line of a caption
    rows = [grid[4 + at * height :][2:SIDE] for at in range(grid.shape[0] // height)]
    return [[row[:, 4 + 2 + at * SIDE :][:, : SIDE - 2] for at in range((row.shape[1] - 8) // SIDE)] for row in rows]


def equal(one: list[np.ndarray], other: list[np.ndarray]) -> bool:
    return len(one) == len(other) and all((a == b).all() for a, b in zip(one, other, strict=True))


def test_an_image_is_a_function_of_class_seed_and_number(clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sample, seen = DiTSampler.__call__, []

    def watched(self: DiTSampler, numbers: Sequence[int], labels: torch.Tensor, *others: Any) -> torch.Tensor:
        seen.append((list(numbers), set(labels.tolist())))
        return sample(self, numbers, labels, *others)

    monkeypatch.setattr(DiTSampler, "__call__", watched)
    both = draw("--labels", "3,5", "--images", "6")
    # Batches of one size and one class: bits may depend on both.
    assert seen == [(list(range(start, start + 4)), {label}) for label in (3, 5) for start in (0, 4)]
    assert [len(row) for row in both] == [6, 6] and not equal(both[0], both[1])
    assert equal(draw("--labels", "5", "--images", "2")[0], both[1][:2])
    assert equal(draw("--labels", "5", "--labels", "3", "--images", "6")[1], both[0])
    assert not equal(draw("--labels", "3", "--images", "6", "--seed", "9")[0], both[0])


def test_what_the_command_line_says_goes_before_params_yaml(clone: Path) -> None:
    plain = draw("--labels", "3")[0]
    said = [("--steps", "3"), ("--guidance", "4"), ("--solver", "heun"), ("--weights", "raw")]
    assert [words for words in said if equal(draw("--labels", "3", *words)[0], plain)] == []


def test_steps_that_say_which_timesteps_need_no_spacing(clone: Path) -> None:
    values = yaml.safe_load(Path("params.yaml").read_text())
    values["train_generator"]["dit"] |= {"diffusion": {"objective": "gaussian"}, "sampling": {"solver": "ddim"}}
    values["sample_generator"]["dit"] |= {"solver": "ddpm", "spacing": "linspace"}
    Path("params.yaml").write_text(yaml.safe_dump(values))
    for steps, spacing in (("ddim5", "trailing"), ("10", "linspace")):
        assert settings_of(Overrides(steps=steps))[0].dit.spacing == spacing


def test_weights_may_lie_in_a_file_a_model_or_a_checkpoint(clone: Path) -> None:
    raw = draw("--labels", "3", "--weights", "raw")[0]
    file = Path("models/generator/raw/model.safetensors")
    Path("checkpoint").mkdir()
    save_file({f"dit/{name}": tensor for name, tensor in load_file(file).items()}, "checkpoint/ema.safetensors")
    for place in (str(file), str(file.parent), "checkpoint", "checkpoint/ema.safetensors"):
        assert equal(draw("--labels", "3", "--weights", place)[0], raw)


def test_the_grid_has_a_name_of_classes_and_seed(clone: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sample", "--labels", "3,5", "--images", "1", "--seed", "7"]) == 0
    assert Path("logs/sample/3-5-7.png").is_file() and "logs/sample/3-5-7.png" in capsys.readouterr().out


REFUSED = [
    (["--labels", "13"], "--labels names the class `13`, which the generator was not trained on; did you mean `3`"),
    (["--labels", "3,,5"], "--labels expects a list of class names"),
    (["--labels", "3", "--text", "x"], "use one command each"),
    (["--text", "x"], "models/generator samples classes: use --labels."),
    (["--text", "x", "--guidance", "0"], "--guidance: valid with --labels or --by generator only"),
    (["--text", "x", "--steps", "3"], "--steps: valid with --labels or --by generator only"),
    (["--labels", "3", "--solver", "eulr"], "`sample_generator.dit.solver` is 'eulr'"),
    (["--labels", "3", "--solver", "ddim"], "`sample_generator.dit.solver` is ddim"),
    (["--labels", "3", "--steps", "0"], "`sample_generator.dit.steps`"),
    (["--labels", "3", "--weights", "logs"], "logs holds no weights: use ema, raw"),
    (["--labels", "3", "--weights", "other.safetensors"], "does not fit the network in models/generator"),
    (["--labels", "3", "--out", "samples/generator/x.png"], "which the stage sample_generator writes"),
]


def test_what_does_not_fit_is_refused(
    clone: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DiTSampler, "__call__", None)  # nothing is sampled
    save_file({"x": torch.zeros(1)}, "other.safetensors")
    answers = [(words, main(["sample", *words]), said, capsys.readouterr().err) for words, said in REFUSED]
    assert [each for each in answers if each[1] != 1 or each[2] not in each[3]] == []


def test_a_missing_generator_names_its_stage(clone: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.rmtree("models/generator")
    assert main(["sample", "--labels", "3"]) == 1
    assert "run `dvc repro train_generator`" in capsys.readouterr().err


def test_a_text_names_the_generator_that_params_yaml_trains_on_texts(
    clone: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.rmtree("models/generator")
    values = yaml.safe_load(Path("params.yaml").read_text())
    for condition, named in (("class", "models/clip"), ("caption", "models/generator")):
        values["train_generator"]["dit"]["model"]["condition"] = condition
        Path("params.yaml").write_text(yaml.safe_dump(values))
        assert main(["sample", "--text", "x"]) == 1
        said = capsys.readouterr().err
        assert f"{named} is missing" in said and "--labels" not in said


def test_a_class_is_given_by_name_or_number() -> None:
    names = ["cat", "tench, Tinca tinca", "1"]
    assert numbers_of(["cat,0", "tench, Tinca tinca"], names) == [0, 0, 1]
    assert numbers_of(["1, 2"], names) == [2, 2], "a name goes before a number"
