"""Draws are functions of (seed, stream, position)."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from darkroom.rng import derive, generator, normal, order, random_numbers


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**31), size=st.integers(1, 400), epoch=st.integers(0, 5))
def test_every_epoch_holds_every_image_once(seed, size, epoch):
    rows = order(seed, size, np.arange(epoch * size, (epoch + 1) * size))
    assert sorted(rows) == list(range(size))


@settings(max_examples=40, deadline=None)
@given(size=st.integers(1, 300), start=st.integers(0, 1000), count=st.integers(1, 200))
def test_any_slice_of_the_order_is_the_slice_of_the_whole(size, start, count):
    whole = order(3, size, np.arange(start + count))
    assert order(3, size, np.arange(start, start + count)).tolist() == whole[start:].tolist()


def test_epochs_and_seeds_differ():
    first, second = order(0, 500, np.arange(500)), order(0, 500, np.arange(500, 1000))
    assert first.tolist() != second.tolist()
    assert first.tolist() != order(1, 500, np.arange(500)).tolist()
    assert first.tolist() != list(range(500))


def test_the_order_is_mixed_over_the_whole_range():
    """Rank correlation of place and row over 20 epochs of 1,000: within 4 standard errors of none."""
    places = np.arange(1000)
    correlations = [np.corrcoef(places, order(0, 1000, places + epoch * 1000))[0, 1] for epoch in range(20)]
    assert abs(np.mean(correlations)) < 4 / np.sqrt(20 * 1000)


def test_the_order_of_a_huge_collection_is_cheap():
    rows = order(0, 400_000_000, np.arange(64))
    assert len(set(rows.tolist())) == 64 and rows.max() > 100_000_000


def test_order_refuses_an_empty_set_and_negative_positions():
    with pytest.raises(ValueError, match="at least one"):
        order(0, 0, [0])
    with pytest.raises(ValueError, match="must not be negative"):
        order(0, 5, [-1])


def test_noise_of_a_position_does_not_depend_on_its_neighbours():
    together = normal(0, "a", [5, 6, 7], (3, 4))
    assert np.array_equal(together[1], normal(0, "a", [6], (3, 4))[0])


def test_draws_of_a_position_come_from_its_generator_and_from_no_other():
    normals, uniforms = random_numbers(3, "a", [7, 2, 9], 5, 2)
    for row, position in enumerate([7, 2, 9]):
        source = generator(3, "a", position)
        assert np.array_equal(normals[row], source.standard_normal(5, dtype=np.float32))
        assert np.array_equal(uniforms[row], source.random(2))


def test_streams_positions_and_seeds_are_different_draws():
    found = {
        generator(seed, stream, position).integers(2**63)
        for seed in (0, 1)
        for stream in ("a", "b")
        for position in (0, 1, 2**40)
    }
    assert len(found) == 12
    assert len({derive(0, "a", p) for p in range(100)}) == 100


PINNED = [-1.958508849143982, -0.020436352118849754, 0.8339771628379822, 2.996797800064087]


def test_draws_are_pinned():
    """A change here changes every result of every user: it needs a new format version and a line in the CHANGELOG."""
    assert order(0, 10, np.arange(10)).tolist() == [7, 0, 9, 4, 2, 1, 6, 8, 5, 3]
    assert normal(0, "pin", [0, 1], (2,)).ravel().tolist() == pytest.approx(PINNED, abs=1e-7)
