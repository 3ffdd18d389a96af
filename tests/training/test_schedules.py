"""Learning rates as functions of the images seen."""

import math
from typing import get_args

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from darkroom.params.training import Schedule, learning_rate
from helpers import training

NEEDS = {
    "piecewise": {"milestones": [{"images": 400, "rate": 0.5}, {"images": 700, "rate": 0.1}]},
    "linear": {"final_rate": 0.1},
    "cosine": {"final_rate": 0.1},
    "exponential": {"final_rate": 0.1},
}


def settings(schedule, **changes):
    """A training of 1,000 images with rate 2 at most and a warm-up of 200."""
    values = {"images": 1000, "batch": 10, "learning_rate": 2.0, "warmup": 200, **NEEDS.get(schedule, {})}
    return training(schedule=schedule, **{**values, **changes})


def test_one_cycle_is_that_of_torch():
    """At every update, torch's OneCycleLR of the same length: within 1e-6 of the highest rate (it counts steps - 1)."""
    settings = training(images=64_000, batch=32, learning_rate=0.002, schedule="one_cycle", warmup=19_200)
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    theirs = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.002, total_steps=2001, pct_start=601 / 2001)
    for update in range(2000):
        ours = learning_rate(settings, update * 32)
        assert ours == pytest.approx(optimizer.param_groups[0]["lr"], abs=2e-6)
        optimizer.step()
        theirs.step()


def test_one_cycle_keeps_the_bits_of_the_committed_curves():
    """The same operations in the same order, on all updates of the default DiT."""
    found = training(schedule="one_cycle", images=76_800, batch=64, learning_rate=0.0015, warmup=7680)
    low, top, end = 0.0015 * (1 / 25), 0.0015, 0.0015 * (1 / 250_000)
    for images in range(0, 76_800, 64):
        if images < 7680:
            expected = low + (top - low) * (1 - math.cos(math.pi * (images / 7680))) / 2
        else:
            expected = top + (end - top) * (1 - math.cos(math.pi * ((images - 7680) / (76_800 - 7680)))) / 2
        assert learning_rate(found, images) == expected


@pytest.mark.parametrize(
    ("schedule", "at", "expected"),
    [
        ("constant", 900, 2.0),
        ("linear", 600, 1.1),
        ("linear", 1000, 0.2),
        ("cosine", 400, 0.2 + 0.9 * (1 + math.sqrt(0.5))),
        ("cosine", 1000, 0.2),
        ("exponential", 600, 2.0 * math.sqrt(0.1)),
        ("exponential", 1000, 0.2),
        ("piecewise", 390, 2.0),
        ("piecewise", 400, 1.0),
        ("piecewise", 700, 0.2),
    ],
)
def test_a_schedule_is_its_formula(schedule, at, expected):
    """Expected values by hand: half-way, at the ends, and at an eighth of a circle."""
    assert learning_rate(settings(schedule), at) == pytest.approx(expected, rel=1e-14)


@pytest.mark.parametrize("schedule", ["cosine", "one_cycle"])
def test_a_schedule_may_end_before_the_training(schedule):
    """Until then it is that of a shorter training, and then its last rate holds."""
    short, long = settings(schedule, images=600), settings(schedule, images=1000, schedule_images=600)
    for images in range(0, 600, 10):
        assert learning_rate(long, images) == learning_rate(short, images)
    for images in range(600, 1000, 10):
        assert learning_rate(long, images) == learning_rate(short, 600)


@pytest.mark.parametrize(
    ("schedule", "images", "said"),
    [("constant", 600, "read with schedule"), ("cosine", 200, "must be above warmup"), ("cosine", 1010, "at most")],
)
def test_an_end_that_no_schedule_can_have_is_refused(schedule, images, said):
    with pytest.raises(ValueError, match=said):
        settings(schedule, schedule_images=images)


@pytest.mark.parametrize("schedule", ["linear", "piecewise"])
def test_the_warm_up_is_linear_from_zero(schedule):
    rates = [learning_rate(settings(schedule), images) for images in range(0, 200, 10)]
    assert rates == pytest.approx([2.0 * images / 200 for images in range(0, 200, 10)], rel=1e-14)


def test_without_a_warm_up_the_first_update_has_the_highest_rate():
    assert learning_rate(settings("linear", warmup=0), 0) == 2.0


@given(
    schedule=st.sampled_from(sorted({*get_args(Schedule)} - {"piecewise"})),
    images=st.integers(2, 10**6),
    warmup=st.integers(0, 10**6),
    final=st.floats(0.01, 0.99),
    at=st.floats(0, 1),
)
def test_rates_lie_between_zero_and_the_highest_and_never_jump(schedule, images, warmup, final, at):
    """From one image to the next no change exceeds the steepest slope of a schedule, 16 / the shortest of its lengths.

    The steepest: an exponential to 0.01 of the top falls by ln 100 < 5 of it over its length, a half cosine by pi / 2.
    """
    warmup %= images
    needed = {"final_rate": final} if schedule in ("linear", "cosine", "exponential") else {}
    found = training(images=images, batch=1, learning_rate=1.0, schedule=schedule, warmup=warmup, **needed)
    place = int(at * (images - 1))
    before, after = learning_rate(found, place), learning_rate(found, place + 1)
    assert 0 <= before <= 1 + 1e-12 and 0 <= after <= 1 + 1e-12
    lengths = [images - warmup, *([warmup] if warmup else [])]
    assert abs(after - before) <= 16 / min(lengths)
    assert (after >= before) if place + 1 <= warmup else (after <= before)


def test_wsd_is_stable_until_its_decay_which_falls_as_one_minus_the_root():
    """Of 1,000 images the decay takes 400: 2 * (1 - 0.9 sqrt(d)) to a final rate of a tenth."""
    found = settings("wsd", decay_fraction=0.4, final_rate=0.1)
    rates = [learning_rate(found, images) for images in (100, 200, 600, 610, 700, 900)]
    assert rates == pytest.approx([1.0, 2.0, 2.0, 2 * (1 - 0.9 * 0.025**0.5), 1.1, 2 * (1 - 0.9 * 0.75**0.5)])


@given(st.integers(2, 300), st.integers(2, 300), st.floats(0.01, 0.9))
def test_of_two_lengths_wsd_is_the_same_until_the_shorter_one_decays(one, other, fraction):
    shorter, longer = (
        settings("wsd", images=10 * steps, warmup=0, decay_fraction=fraction) for steps in sorted((one, other))
    )
    assert shorter.decay_start <= longer.decay_start
    for images in range(0, shorter.decay_start + 1, 10):
        assert learning_rate(shorter, images) == learning_rate(longer, images) == 2.0
    assert shorter.decay_start < shorter.images and learning_rate(shorter, shorter.images) == pytest.approx(0.0)


def test_wsd_refuses_a_warmup_that_its_decay_cuts_off():
    with pytest.raises(ValueError, match=r"decays after 800 images .*before the warmup \(900\)"):
        settings("wsd", warmup=900)
