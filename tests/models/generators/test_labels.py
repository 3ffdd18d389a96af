"""Which class an image has: a function of its number, with the frequencies that are wanted."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from darkroom.errors import DarkroomError
from darkroom.models.generators.conditions import balanced, by_count, by_frequency, class_number, class_rule

COUNTS = st.lists(st.integers(0, 1300), min_size=1, max_size=40).filter(any)


def test_balanced_is_the_number_modulo_the_classes() -> None:
    assert balanced(3)(np.arange(7)).tolist() == [0, 1, 2, 0, 1, 2, 0]


@given(COUNTS, st.integers(0, 10**6), st.integers(1, 2000))
def test_any_images_in_a_row_have_the_frequencies(counts: list[int], start: int, images: int) -> None:
    found = np.bincount(by_frequency(counts)(np.arange(start, start + images)), minlength=len(counts))
    wanted = images * np.array(counts) / sum(counts)
    # An interval's count along multiples of the golden ratio is off by O(log n): 5 holds for 2,000 with room.
    assert abs(found - wanted).max() < 5 and not found[np.array(counts) == 0].any()


def test_the_rule_of_frequencies_stays() -> None:
    """Samples of before would be of other classes."""
    assert by_frequency([1, 2, 3, 4])(np.arange(12)).tolist() == [0, 3, 1, 3, 2, 0, 3, 2, 3, 2, 1, 3]
    assert by_frequency([5, 5])(np.array([10**9, 0])).tolist() == by_frequency([1, 1])(np.array([10**9, 0])).tolist()


@given(st.lists(st.integers(0, 60), min_size=1, max_size=12).filter(any), st.data())
def test_numbers_by_class_are_met_and_mixed(counts: list[int], data: st.DataObject) -> None:
    total = sum(counts)
    labels = by_count(counts)(np.arange(total))
    assert np.bincount(labels, minlength=len(counts)).tolist() == counts
    start = data.draw(st.integers(0, total - 1))
    images = data.draw(st.integers(1, total - start))
    found = np.bincount(labels[start : start + images], minlength=len(counts))
    assert (abs(found - images * np.array(counts) / total) <= len(counts)).all()


def test_frequencies_and_names_that_are_not_there_are_refused() -> None:
    with pytest.raises(DarkroomError, match="`k` is frequency, but models/generator does not record"):
        class_rule("frequency", ["a"], None, "k")
    with pytest.raises(DarkroomError, match=r"`k` names the class `kat`, .* did you mean `cat`\?"):
        class_rule({"kat": 3}, ["cat", "dog"], None, "k")
    with pytest.raises(DarkroomError, match="the 2 classes are cat, dog"):
        class_number("zebra", ["cat", "dog"], "--labels names")


def test_a_name_of_several_classes_is_refused_and_their_numbers_are_not() -> None:
    """ImageNet has two classes called crane."""
    classes = ["crane", "hen", "crane"]
    with pytest.raises(DarkroomError, match=r"`k` names the class `crane`, but 2 classes have this name: .*, 0, 2"):
        class_rule({"crane": 3}, classes, None, "k")
    found = class_rule({"0": 1, "2": 3, "hen": 2, "1": 1}, classes, None, "k")(np.arange(7))
    assert np.bincount(found).tolist() == [1, 3, 3]
    assert class_number("3", ["7", "3"], "--labels names") == 1, "a name goes before a number"
