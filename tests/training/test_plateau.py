"""A training that ends when its held-out score has levelled off: the rule, and the loop that follows it."""

import os
import signal

import numpy as np
import pytest

from darkroom.errors import DarkroomError
from darkroom.training.loop import train
from darkroom.training.plateau import exponent_of, judged_points, levelled_off, trend
from helpers import run, training
from training.toy import Numbers, Toy, curves, places, weights

WHOLE = 2048


def settings(**changes):
    """A wsd training of 256 updates at most, validated every 16 images."""
    values = {"images": WHOLE, "schedule": "wsd", "validate_every": 16, "min_improvement": 0.1}
    return training(**{**values, **changes})


def falling(exponent, images=1000, every=20, noise=0.0):
    """A power law, whose logarithm is by turns above and below it by `noise`."""
    at = range(every, images + 1, every)
    return [(float(n), float(3 * n**-exponent * np.exp(noise * (-1) ** number))) for number, n in enumerate(at)]


@pytest.mark.parametrize("exponent", [0.05, 0.3, 1.0, -0.2])
def test_the_trend_of_a_power_law_is_its_exponent(exponent):
    found = trend(falling(exponent))
    assert found.exponent == pytest.approx(exponent) and found.error == pytest.approx(0, abs=1e-9)
    assert found.of_doubling == pytest.approx(1 - 2**-exponent)
    assert found.of_more(1000, 1000) == pytest.approx(found.of_doubling)
    assert exponent_of(found.of_doubling) == pytest.approx(exponent)


def test_the_error_of_the_trend_is_the_spread_of_slopes_over_draws_of_noise():
    """Of 400 draws: within a tenth, three times the error of such a spread (1 / sqrt(800))."""
    found, at = [], np.arange(20, 1001, 20)
    for draws in np.random.default_rng(1).normal(size=(400, len(at))):
        found.append(trend(list(zip(at, at**-0.5 * np.exp(0.05 * draws), strict=True))))
    assert np.std([each.exponent for each in found]) == pytest.approx(np.mean([each.error for each in found]), rel=0.1)


def test_it_has_levelled_off_where_twice_the_images_bring_less_than_asked():
    """A tenth for twice the images is an exponent of 0.152."""
    assert levelled_off(settings(), falling(0.14)) and not levelled_off(settings(), falling(0.16))
    assert levelled_off(settings(), falling(-0.1))  # it rises
    assert not levelled_off(settings(min_improvement=None), falling(0.0))


def test_it_waits_while_the_noise_hides_what_twice_the_images_bring():
    assert levelled_off(settings(), falling(0.1, noise=0.001))
    assert not levelled_off(settings(), falling(0.1, noise=0.3))


def test_it_waits_for_five_scores_in_the_last_half_for_twice_the_warmup_and_never_decides_in_the_decay():
    assert levelled_off(settings(), falling(0.0, every=100)) and not levelled_off(settings(), falling(0.0, every=250))
    assert not levelled_off(settings(warmup=504), falling(0.0)) and levelled_off(settings(warmup=496), falling(0.0))
    begins = settings(validate_every=8).decay_start
    points = falling(0.0, images=begins, every=8)
    assert levelled_off(settings(), points[:-1]) and not levelled_off(settings(), points)


def test_a_score_that_has_reached_nothing_has_levelled_off():
    near = [(images, 1e-9 - 2e-9 * (number % 3 > 0)) for number, (images, _) in enumerate(falling(1.0))]
    assert levelled_off(settings(), near) and levelled_off(settings(), [(images, 0.0) for images, _ in near])
    assert not levelled_off(settings(), [*falling(0.0)[:-1], (1000.0, -0.01)])


def test_of_a_score_that_rises_to_one_the_rest_is_judged():
    records = [{"images": 8, "eval/cosine": 0.75, "val/loss": 3.0}, {"images": 16}, {"images": 24, "val/loss": 2.0}]
    assert judged_points("eval/cosine", records) == [(8.0, 0.25)]
    assert judged_points("val/loss", records) == [(8.0, 3.0), (24.0, 2.0)]


@pytest.fixture
def undisturbed(tmp_path, capsys):
    trainer = train(Toy(), settings(), run(), places(tmp_path / "whole"))
    return trainer, weights(trainer), curves(tmp_path / "whole" / "curves"), capsys.readouterr().out


def test_a_training_that_has_levelled_off_decays_and_ends(undisturbed):
    """The manifest and the log say where; the learning rate falls from there to nearly nothing."""
    trainer, _, _, said = undisturbed
    begins = trainer.metadata()["decay_began_at"]
    assert begins % 16 == 0 and 0 < begins < trainer.images < WHOLE
    assert trainer.images == settings().decaying_from(begins).images == trainer.records[-1]["images"]
    assert [each["learning_rate"] for each in trainer.records if each["images"] <= begins] == pytest.approx(
        [0.01] * (begins // 16)
    )
    assert trainer.records[-1]["learning_rate"] < 0.002
    assert "The validation loss has levelled off, to less than 0.1 for twice the images: the learning rate" in said
    assert f"falls from image {begins:,}, and the training ends at {trainer.images:,}." in said
    assert f"{trainer.images:,} / {trainer.images:,}" in said


@pytest.mark.parametrize("where", ["before", "at", "after"])
def test_a_training_that_is_stopped_around_its_decision_continues_bit_for_bit(tmp_path, undisturbed, where):
    trainer, expected, drawn, _ = undisturbed
    begins = trainer.decay_begins
    image = {"before": begins - 8, "at": begins, "after": begins + 8}[where]
    hook = lambda seen: os.kill(os.getpid(), signal.SIGTERM) if seen == image else None  # noqa: E731
    with pytest.raises(SystemExit):
        train(Toy(hook), settings(), run(), places(tmp_path))
    resumed = train(Toy(), settings(), run(), places(tmp_path))
    assert resumed.images == trainer.images and weights(resumed) == expected
    assert curves(tmp_path / "curves") == drawn and resumed.metadata() == trainer.metadata()
    again = Toy()
    train(again, settings(), run(), places(tmp_path))
    assert again.seen == []


def test_it_is_the_same_as_a_training_of_that_length(tmp_path, undisturbed):
    trainer, expected, _, _ = undisturbed
    known = train(Toy(), settings(images=trainer.images, min_improvement=None), run(), places(tmp_path))
    assert weights(known) == expected and known.records == trainer.records


def test_without_a_score_it_goes_on_to_the_last_image(tmp_path):
    recipe = Toy()
    recipe.judge = "eval/fd_debiased"
    assert train(recipe, settings(), run(), places(tmp_path)).images == WHOLE


def test_scores_of_what_it_makes_decide_where_they_judge(tmp_path):
    """A Fréchet distance that is flat from the first: five scores in the last half are there after 128 images."""
    recipe = Toy()
    recipe.judge, recipe.evaluations = "eval/fd_debiased", [(16, lambda *_: {"fd_debiased": 2.0})]
    trainer = train(recipe, settings(validate_every=512), run(), places(tmp_path))
    assert trainer.decay_begins == 128 and "val/loss" in trainer.records[-1]


def test_it_needs_validation_images(tmp_path):
    recipe = Toy()
    recipe.val = type("None", (Numbers,), {"__len__": lambda _: 0})()
    with pytest.raises(DarkroomError, match=r"`min_improvement` needs validation images"):
        train(recipe, settings(), run(), places(tmp_path))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"schedule": "cosine"}, "schedule is cosine"),
        ({"ema_profiles": [0.1]}, "ema_profiles are spread over all images"),
    ],
)
def test_what_it_cannot_end_is_refused(changes, says):
    with pytest.raises(ValueError, match=says):
        settings(**changes)
