"""How long each training may be, so that the whole ends in time."""

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from darkroom.tools.init.measuring import allot
from darkroom.tools.init.proposal import BATCH

MEASURED = {"train_tokenizer": 32_000, "train_generator": 128_000}
ENOUGH = {"train_tokenizer": 40_000, "train_generator": 160_000}
NO_LIMIT = dict.fromkeys(MEASURED, 10**9)


def one_after_another(lengths: Mapping[str, float]) -> float:
    """100 s of the tokenizer and 300 s of the generator, as measured."""
    return sum(_seconds(lengths).values())


def _seconds(lengths: Mapping[str, float]) -> dict[str, float]:
    seconds = {"train_tokenizer": 100, "train_generator": 300}
    return {name: seconds[name] * lengths[name] / MEASURED[name] for name in MEASURED}


@given(st.floats(60, 100_000))
def test_the_time_is_used_and_not_exceeded(seconds: float) -> None:
    lengths = allot(one_after_another, ENOUGH, NO_LIMIT, seconds)
    took = one_after_another(lengths)
    assert 0.8 * seconds < took <= seconds
    # In proportion: within two steps of each other.
    parts = [lengths[name] / ENOUGH[name] for name in MEASURED]
    assert max(parts) / min(parts) < 1.13
    assert all(lengths[name] % BATCH[name] == 0 for name in MEASURED)


def test_what_nothing_waits_for_fills_the_time() -> None:
    lengths = allot(lambda lengths: max(_seconds(lengths).values()), ENOUGH, NO_LIMIT, 300)
    assert lengths["train_tokenizer"] > 85_000 and lengths["train_generator"] > 115_000


def test_no_training_sees_its_images_too_often() -> None:
    most = {**NO_LIMIT, "train_generator": 50_000}
    lengths = allot(one_after_another, ENOUGH, most, 10_000)
    assert 45_000 < lengths["train_generator"] <= 50_000 and lengths["train_tokenizer"] > 1_000_000


def test_too_little_time_gives_the_least() -> None:
    assert allot(one_after_another, ENOUGH, NO_LIMIT, 1) == {
        "train_tokenizer": 4000,
        "train_generator": 16000,
    }
