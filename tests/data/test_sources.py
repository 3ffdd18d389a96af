import numpy as np
import pytest
from sklearn.datasets import load_digits

from darkroom.data.sources import SOURCES, open_source, slice_of
from darkroom.errors import DarkroomError
from darkroom.schemas.ingest import Digits as Settings


def digits():
    return open_source("digits", Settings(caption="a handwritten {word} ({label})"))


def test_digits_are_scikit_learns_scaled_to_255() -> None:
    source = digits()
    found = list(source.samples(40, 60))
    images, labels = load_digits(return_X_y=True)
    for number, sample in zip(range(40, 60), found, strict=True):
        assert sample.image.mode == "L"
        expected = np.array([round(value * 255 / 16) for value in images[number]]).reshape(8, 8)
        assert (np.asarray(sample.image) == expected).all()
        assert sample.label == str(labels[number])
    assert found[2].key == "digits-0042"
    words = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
    assert [sample.caption for sample in found] == [f"a handwritten {words[n]} ({n})" for n in labels[40:60]]


def test_all_1797_digits_come_in_ascending_order() -> None:
    source = digits()
    keys = [sample.key for sample in source.samples(0, source.size())]
    assert len(keys) == 1797
    assert keys == sorted(set(keys))


def test_a_slice_to_the_end() -> None:
    assert slice_of(digits(), "second", 900, None) == range(900, 1797)


@pytest.mark.parametrize(("start", "stop"), [(0, 1798), (1797, None), (5, 5), (-1, 4)])
def test_a_slice_outside_the_source_names_part_and_size(start: int, stop: int | None) -> None:
    with pytest.raises(DarkroomError, match=r"part `second`.*has 1797"):
        slice_of(digits(), "second", start, stop)


def test_a_missing_section_and_an_unknown_source_are_refused() -> None:
    with pytest.raises(DarkroomError, match="section `digits`"):
        open_source("digits", None)
    with pytest.raises(DarkroomError, match=f"no source `birds`; there are: {', '.join(SOURCES)}"):
        open_source("birds", None)
