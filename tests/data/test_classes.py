"""Names of classes that nearly agree, and classes without a training image."""

from darkroom.data.classes import class_warnings, near_names, untrained

CLEAN = ["cat", "dog", "1", "10", "100", "class 1", "class 2", "", "s", "glass", "gloss", "bus", "A", "a"]


def test_names_that_nearly_agree_are_grouped() -> None:
    assert near_names(CLEAN) == []
    assert near_names(["Cat", "cat", "cat ", "dog"]) == [["Cat", "cat", "cat "]]
    assert near_names(["dog", "dogs"]) == [["dog", "dogs"]]
    assert near_names(["New York", "new-york", "class_01", "class 1"]) == [
        ["class 1", "class_01"],
        ["New York", "new-york"],
    ]
    assert near_names(["\ufb01g", "fig", "Straße", "STRASSE"]) == [["fig", "\ufb01g"], ["STRASSE", "Straße"]]


def test_classes_without_a_training_image() -> None:
    counts = {"train": {"a": 3, "b": 0}, "val": {"b": 1, "c": 2}, "test": {"a": 1, "d": 0}}
    assert untrained(counts) == ["b", "c"]
    (line,) = class_warnings(counts)
    assert "'b', 'c'" in line


def test_many_are_cut() -> None:
    counts = {"train": {}, "val": {f"{letter}x": 1 for letter in "abcdefghijklm"}, "test": {}}
    (line,) = class_warnings(counts)
    assert "'jx' and 3 more" in line
    assert class_warnings({"train": dict.fromkeys(CLEAN, 1), "val": {}, "test": {}}) == []
