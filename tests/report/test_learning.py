"""What the curves of a training say of its length."""

from collections.abc import Callable
from pathlib import Path

import pytest

from darkroom.report.curves import Finding, findings, read_training
from darkroom.report.inputs import read_inputs
from darkroom.report.page import render
from report.making import Page, curve

Values = Callable[[float], float]
AT = [1000.0 * number for number in range(1, 11)]


def found(folder: Path, name: str, epochs: float | None = None, **curves: Values) -> tuple[Finding, ...]:
    """Return what is found in the curves of a training; of curves `val__loss` is val/loss."""
    training = folder / "curves" / name
    training.mkdir(parents=True)
    for key, values in {"train__loss": lambda images: 1 / images, **curves}.items():
        curve(training, key.replace("__", "/"), [(images, values(images)) for images in AT])
    if epochs is not None:
        curve(training, "epoch", [(AT[-1], epochs)])
    return findings(read_training(Path("curves") / name))


def rising(images: float) -> float:
    """Lowest at 4,000 images, and 0.05 more at each point after it."""
    return max(1.0, 5 - images / 1000) + 0.05 * max(0.0, images / 1000 - 4)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_loss_that_still_falls_is_named(here: Path) -> None:
    (note,) = found(here, "tokenizer", val__loss=lambda images: 1000 / images)
    assert note == Finding("The validation loss still fell at the end, to 0.1 from 0.2 at half of the images.")


def test_a_loss_below_zero_is_judged_by_its_reconstruction(here: Path) -> None:
    curves = {"val__loss": lambda images: -images, "val__reconstruction": lambda images: 1000 / images}
    (note,) = found(here, "tokenizer", **curves)
    assert note.text.startswith("The reconstruction loss of the validation images still fell")


def test_a_loss_that_rises_warns(here: Path) -> None:
    (warning,) = found(here, "decoder/base", val__loss=rising)
    assert warning == Finding("The validation loss was lowest at image 4,000 and has risen since, to 1.3 from 1.", True)


@pytest.mark.parametrize(
    ("name", "judge"),
    [("extractor", "val__accuracy"), ("clip", "eval__image_to_text_r1"), ("prior", "eval__cosine")],
)
def test_the_score_that_judges_goes_before_the_loss(here: Path, name: str, judge: str) -> None:
    assert found(here, name, val__loss=rising, **{judge: lambda images: 0.9 + 1e-3 / images}) == ()
    (warning,) = found(here, "teacher", val__loss=rising, val__accuracy=lambda images: 0.9 - images / 1e5)
    assert warning.text.startswith("The error rate on the validation images was lowest at image 1,000")


def test_noise_and_few_scores_say_nothing(here: Path) -> None:
    noisy = {images: 1.0 + 0.1 * (-1) ** number for number, images in enumerate(AT)}
    assert found(here, "tokenizer", val__loss=noisy.__getitem__) == ()
    folder = here / "curves/clip"
    curve(folder, "train/loss", [(100, 2.0)])
    curve(folder, "eval/image_to_text_r1", [(100, 0.2), (200, 0.3)])
    assert findings(read_training(Path("curves/clip"))) == ()


def test_it_says_how_often_each_image_was_seen(here: Path) -> None:
    (note,) = found(here, "tokenizer", epochs=41.27, val__loss=lambda images: 1.0)
    assert note == Finding("10,000 images seen, each of the training images 41.3 times.")
    (here / "curves/scene_reader").mkdir()
    assert findings(read_training(Path("curves/scene_reader"))) == ()


def test_the_page_says_it_below_the_curves_of_the_training(made: Path) -> None:
    curve(Path("curves/tokenizer"), "val/loss", [(images, rising(images)) for images in AT])
    html = render("Digits", read_inputs())
    assert Page(html).faults == []
    section = html[html.index("<h3>Tokenizer</h3>") :]
    section = section[: section.index("<h3>", 4)]
    notes = section[section.index("</figure>") :]
    assert "<strong>Warning:</strong> The validation loss was lowest at image 4,000" in notes
