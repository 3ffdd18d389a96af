"""What the curves of a training say of its length."""

import math
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from darkroom.models.decoder.settings import TrainDecoder
from darkroom.models.generators.settings import TrainGenerator
from darkroom.report.curves import Finding, findings, read_training
from darkroom.report.inputs import read_inputs
from darkroom.report.page import render
from report.making import Page, curve

Values = Callable[[float], float]
AT = [1000.0 * number for number in range(1, 11)]


def constant(images: float) -> float:
    return 0.01


def cosine(images: float) -> float:
    return 0.01 * (1 + math.cos(math.pi * images / AT[-1])) / 2


def found(
    folder: Path, name: str, rate: Values = constant, epochs: float | None = None, **curves: Values
) -> tuple[Finding, ...]:
    """Return what is found in the curves of a training; of curves `val__loss` is val/loss."""
    training = folder / "curves" / name
    training.mkdir(parents=True)
    for key, values in {"train__loss": lambda images: 1 / images, "learning_rate": rate, **curves}.items():
        curve(training, key.replace("__", "/"), [(images, values(images)) for images in AT])
    if epochs is not None:
        curve(training, "epoch", [(AT[-1], epochs)])
    return findings(read_training(Path("curves") / name))


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_loss_that_still_falls_asks_for_more_images(here: Path) -> None:
    """3 n^-0.5: twice the images take 1 - 2^-0.5 of it away, 1,000 more after 10,000 take 1 - 1.1^-0.5."""
    (warning,) = found(here, "tokenizer", val__loss=lambda images: 3 * images**-0.5)
    assert warning == Finding(
        "The validation loss still improves by 4.7% per 1,000 images, about 29% for twice as many: more `images` of "
        "`train_tokenizer` would help.",
        warning=True,
    )


@pytest.mark.parametrize("exponent", [0.0, 0.1, 0.15])
def test_a_loss_that_hardly_falls_asks_for_nothing(here: Path, exponent: float) -> None:
    """A tenth for twice the images is 0.152."""
    assert found(here, "scene_reader", val__loss=lambda images: images**-exponent) == ()


def test_what_the_decay_alone_brings_asks_for_nothing(here: Path) -> None:
    """Flat while the rate is high, and a half less when it has fallen: the same curve under a constant rate warns."""

    def loss(images: float) -> float:
        return 1.0 if images <= 5000 else 1.0 - (images - 5000) / 10_000

    assert found(here, "tokenizer", cosine, val__loss=loss) == ()
    (warning,) = found(here, "scene_reader", constant, val__loss=loss)
    assert warning.warning


def test_under_a_falling_rate_the_smaller_of_both_trends_is_told(here: Path) -> None:
    """n^-1 to the middle, n^-0.5 after it."""

    def loss(images: float) -> float:
        return 1000 / images if images <= 5000 else 0.2 * (images / 5000) ** -0.5

    (warning,) = found(here, "tokenizer", cosine, val__loss=loss)
    assert "about 29% for twice as many" in warning.text


def test_noise_asks_for_nothing(here: Path) -> None:
    noisy = {images: images**-0.3 * (1 + 0.3 * (-1) ** number) for number, images in enumerate(AT)}
    assert found(here, "tokenizer", val__loss=noisy.__getitem__) == ()


def test_a_loss_below_zero_is_judged_by_its_reconstruction(here: Path) -> None:
    (warning,) = found(
        here, "tokenizer", val__loss=lambda images: -images, val__reconstruction=lambda images: images**-0.5
    )
    assert warning.text.startswith("The reconstruction loss of the validation images still improves by 4.7%")


def test_a_classifier_is_judged_by_its_error_rate(here: Path) -> None:
    curves = {"val__loss": lambda images: 1 / images, "val__accuracy": lambda images: 1.0}
    assert found(here, "extractor", **curves) == ()
    curves["val__accuracy"] = lambda images: 1 - 10 * images**-0.5
    (warning,) = found(here, "teacher", **curves)
    assert warning.text.startswith("The error rate on the validation images still improves by 4.7%")


def test_of_noisy_images_scores_judge_and_not_the_loss(here: Path) -> None:
    loss = {"val__loss": lambda images: 1 / images}
    for name, section in (("generator", TrainGenerator), ("decoder/up", TrainDecoder)):
        (note,) = found(here, name, **loss)
        assert not note.warning
        stage = f"train_{name.partition('/')[0]}"
        assert f"set `{stage}.evaluate.every` above 0" in note.text
        others = dict(re.findall(r"`\.(\w+)` to ([\w/]+)", note.text))
        section.model_fields["evaluate"].annotation(every=1, **others)  # valid, when the advice is followed
    (warning,) = found(here, "decoder/base", **loss, eval__fd_debiased=lambda images: images**-0.5)
    assert warning.text.startswith("The Fréchet distance from training images still improves by 4.7%")
    assert "`images` of `train_decoder.unets.base`" in warning.text
    (note,) = found(here, "decoder/third", **loss, eval__fd_debiased=lambda images: 1 + 1 / images)
    assert not note.warning and note.text.endswith("from training images by less than a tenth.")
    noise = iter([3.0, 1.0] * 40)
    (note,) = found(here, "decoder/fourth", **loss, eval__fd_debiased=lambda images: next(noise))
    assert not note.warning and "the noise of its scores is too large" in note.text
    assert found(here, "prior", **loss, eval__cosine=lambda images: 0.9) == ()


def test_too_few_scores_say_nothing_and_it_is_said(here: Path) -> None:
    folder = here / "curves/tokenizer"
    curve(folder, "train/loss", [(100, 2.0)])
    curve(folder, "val/loss", [(100, 2.0), (200, 1.0)])
    (note,) = findings(read_training(Path("curves/tokenizer")))
    assert not note.warning and "2 since the highest learning rate" in note.text


def rising(images: float) -> float:
    """Lowest at 4,000 images, and 0.05 more at each point after it: 25% at the median of the last three."""
    return max(1.0, 5 - images / 1000) + 0.05 * max(0.0, images / 1000 - 4)


def test_a_validation_loss_that_rises_while_the_other_falls_is_memorising(here: Path) -> None:
    (warning,) = found(here, "scene_reader", val__loss=rising)
    assert warning.warning and "`select: best` in `train_scene_reader`" in warning.text
    assert warning.text.startswith("The validation loss was lowest at image 4,000 and has risen by 25% since")
    (warning,) = found(here, "generator", val__loss=rising)  # its loss is of noise, and memorising shows in it
    assert warning.warning and "it begins to know its images by heart" in warning.text
    assert "select" not in warning.text  # the images of the lowest loss are seldom the best
    distance = {"eval__fd_debiased": lambda images: images**-0.5}  # which gets better long after
    rises, falls = found(here, "decoder/base", val__loss=rising, **distance)
    assert "by heart" in rises.text and falls.text.startswith("The Fréchet distance from training images still")


def test_a_rise_that_noise_explains_or_that_training_images_share_is_none(here: Path) -> None:
    assert found(here, "scene_reader", val__loss=rising, train__loss=lambda images: images) == ()
    noisy = {images: 1.0 + 0.1 * (-1) ** number for number, images in enumerate(AT)}
    assert found(here, "tokenizer", val__loss=noisy.__getitem__) == ()
    assert found(here, "prior", val__loss=lambda images: 1 + 1e-6 * images, eval__cosine=lambda images: 0.9) == ()


def test_a_classifier_that_is_only_too_sure_of_itself_has_not_memorised(here: Path) -> None:
    assert found(here, "extractor", val__loss=rising, val__accuracy=lambda images: 0.9) == ()
    for name, fall in (("clip", 0.01), ("classifier", 0.3)):  # of few images: within their noise, and beyond it
        noisy = {images: 0.9 - fall * images / max(AT) + 0.02 * (-1) ** number for number, images in enumerate(AT)}
        key = "eval__image_to_text_r1" if name == "clip" else "val__accuracy"
        assert bool(found(here, name, val__loss=rising, **{key: noisy.__getitem__})) == (fall > 0.1), name
    (warning,) = found(here, "teacher", val__loss=rising, val__accuracy=lambda images: 0.9 - images / 1e5)
    assert "it memorises" in warning.text


def test_a_clip_that_finds_more_captions_has_not_memorised(here: Path) -> None:
    """The emoji's: the loss rose by a fifth from its lowest, and the fraction found from 0.51 to 0.66."""
    assert found(here, "clip", val__loss=rising, eval__image_to_text_r1=lambda images: 0.5) == ()


def test_a_prior_that_is_nearer_to_its_images_has_not_memorised(here: Path) -> None:
    assert found(here, "prior", val__loss=rising, eval__cosine=lambda images: 0.9) == ()


def test_it_says_how_often_each_image_was_seen(here: Path) -> None:
    (note,) = found(here, "tokenizer", epochs=41.27, val__loss=lambda images: 1.0)
    assert note == Finding("10,000 images seen, each of the training images 41.3 times.")
    (here / "curves/scene_reader").mkdir()
    assert findings(read_training(Path("curves/scene_reader"))) == ()


def test_the_page_says_it_below_the_curves_of_the_training(made: Path) -> None:
    folder = Path("curves/tokenizer")
    curve(folder, "val/loss", [(images, 3 * images**-0.5) for images in AT])
    curve(folder, "learning_rate", [(images, 0.01) for images in AT])
    html = render("Digits", read_inputs())
    assert Page(html).faults == []
    section = html[html.index("<h3>Tokenizer</h3>") :]
    section = section[: section.index("<h3>", 4)]
    advice = section[section.index("</figure>") :]
    assert "<strong>Warning:</strong> The validation loss still improves by 4.7% per 1,000 images" in advice
    assert "more <code>images</code> of <code>train_tokenizer</code> would help.</p>" in advice
