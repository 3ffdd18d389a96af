import numpy as np
import pytest

from darkroom.data.sources import open_source, slice_of
from darkroom.errors import DarkroomError
from darkroom.params.parts import SECTIONS, SOURCES, Part, settings_of
from darkroom.params.parts import Digits as Settings

PART = Part(source="digits", path="data/none")
CAPTION = Settings(caption="a handwritten {word} ({label})")


def digits():
    return open_source(PART, CAPTION)


def test_digits_are_scikit_learns_scaled_to_255() -> None:
    from sklearn.datasets import load_digits

    source = digits()
    entries = list(source.entries(40, 60))
    found = [source.read(entry) for entry in entries]
    images, labels = load_digits(return_X_y=True)
    for number, raw in zip(range(40, 60), found, strict=True):
        assert raw.image.mode == "L"
        expected = np.array([round(value * 255 / 16) for value in images[number]]).reshape(8, 8)
        assert (np.asarray(raw.image) == expected).all()
        assert raw.label == str(labels[number])
    assert (entries[2].key, entries[2].where) == ("digits-0042", "digit 42")
    words = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
    assert [raw.caption for raw in found] == [f"a handwritten {words[n]} ({n})" for n in labels[40:60]]


def test_all_1797_digits_come_in_ascending_order() -> None:
    source = digits()
    keys = [entry.key for entry in source.entries(0, None)]
    assert len(keys) == source.size() == 1797
    assert keys == sorted(set(keys))


def test_a_slice_to_the_end() -> None:
    assert slice_of(digits(), "second", 900, None) == (900, 1797)


@pytest.mark.parametrize(("start", "stop"), [(0, 1798), (1797, None), (5, 5), (-1, 4)])
def test_a_slice_outside_the_source_names_part_and_size(start: int, stop: int | None) -> None:
    with pytest.raises(DarkroomError, match=r"part `second`.*with 1797"):
        slice_of(digits(), "second", start, stop)


def test_a_source_without_samples_is_told_as_such() -> None:
    class Empty:
        def size(self) -> int:
            return 0

    with pytest.raises(DarkroomError, match="part `second`: its source has no samples"):
        slice_of(Empty(), "second", 0, None)  # type: ignore[arg-type]


def test_every_source_has_a_section_and_a_class() -> None:
    assert set(SOURCES) == set(SECTIONS)


def test_a_missing_section_is_refused() -> None:
    with pytest.raises(DarkroomError, match="section `digits`"):
        settings_of("one", PART, None)


def test_what_a_part_says_comes_before_its_section() -> None:
    part = Part(source="digits", path="data/none", settings={"caption": "{label}"})
    assert settings_of("one", part, CAPTION).caption == "{label}"
    with pytest.raises(DarkroomError, match=r"unknown key `parts\.one\.settings\.captoin`; did you mean `caption`"):
        settings_of("one", Part(source="digits", path="data/none", settings={"captoin": ""}), CAPTION)
