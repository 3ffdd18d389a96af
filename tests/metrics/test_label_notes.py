"""What a card says of label scores: an evaluator that is worth little."""

from typing import Any

from darkroom.metrics.labels import LITTLE, label_notes, worst_classes


def said(scores: dict[str, float], real: float, **more: Any) -> list[str]:
    labels = {"held_out": real, "held_out_confident": 0.9, "constant": 0.6, "never_recognised": []}
    return label_notes(scores, {"label_accuracy": {**labels, "without_held_out": [], **more}})


def test_an_evaluator_that_misreads_real_images_says_little() -> None:
    (note,) = said({"label_accuracy": 0.7}, LITTLE - 0.001)
    assert (
        note.startswith("label accuracy says little")
        and "79.9% of the held-out real images" in note
        and "60.0%" in note
    )
    assert (
        said({"label_accuracy": 0.7}, LITTLE) == [] == said({"fd": 1.0}, 0.1) == label_notes({"label_accuracy": 1}, {})
    )


def test_classes_that_it_never_recognises_and_that_are_not_there_are_named() -> None:
    never, without = said(
        {"label_accuracy": 0.7}, 0.9, never_recognised=["owl", "elk"], without_held_out=list("abcdefg")
    )
    assert (
        "images of owl, elk count as wrong" in never and "no held-out image is of a, b, c, d, e and 2 more" in without
    )


def test_the_worst_classes_are_named_with_their_counts() -> None:
    real = {name: {"n": 50, "accuracy": 0.9} for name in "abcdefgh"}
    own = {name: {"n": 40, "accuracy": number / 10} for number, name in enumerate("hgfedc")} | {
        "b": {"n": 40, "accuracy": 0.85},
        "unknown": {"n": 40, "accuracy": 0.0},
    }
    (note,) = worst_classes(own, real)
    assert note.startswith("label accuracy lies below that of real images in h 0.00 of 40 (real 0.90), g 0.10 of 40")
    assert note.endswith("d 0.40 of 40 (real 0.90) and 1 more") and worst_classes({"b": own["b"]}, real) == []
