"""A draw of images begins as any shorter one, takes none twice, and leaves no part of the data out."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from darkroom.data.draw import drawn, repeats


@given(st.integers(0, 500), st.integers(0, 600), st.integers(0, 600), st.integers(0, 9))
def test_a_longer_draw_begins_with_a_shorter_one(total: int, one: int, other: int, seed: int) -> None:
    few, many = sorted((one, other))
    assert drawn(total, many, seed)[: min(few, total)] == drawn(total, few, seed)
    assert sorted(drawn(total, None, seed)) == list(range(total))
    assert len(set(drawn(total, many, seed))) == min(many, total)


def test_a_draw_is_not_the_first_ones_and_follows_the_seed() -> None:
    classes = np.repeat(np.arange(5), [600, 200, 100, 50, 50])
    found = np.bincount(classes[drawn(1000, 200)], minlength=5)
    assert abs(found - 200 * np.array([0.6, 0.2, 0.1, 0.05, 0.05])).max() < 25  # 3.6 sd of the largest class
    assert drawn(1000, 50, 1) != drawn(1000, 50, 2)


def test_equal_keys_are_told_apart_by_what_comes_before() -> None:
    keys, captions = ["a", "b", "a", "a", "b"], ["x", None, "x", "y", None]
    assert repeats(keys, captions, [2, 3, 4, 0]) == {"0": 1, "2": 1}
