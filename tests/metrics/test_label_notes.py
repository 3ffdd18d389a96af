"""What a card says of label scores: an evaluator that is worth little, or that another contradicts."""

from typing import Any

import pytest

from darkroom.metrics.labels import LITTLE, label_notes


def said(scores: dict[str, float], real: float, reader: float | None = None, **more: Any) -> list[str]:
    labels = {"held_out": real, "held_out_confident": 0.9, "constant": 0.6, "never_recognised": []}
    baselines: dict[str, Any] = {"label_accuracy": {**labels, "without_held_out": [], **more}}
    if reader is not None:
        baselines["scene_reader"] = {"originals": {"colour_and_form": reader}}
    return label_notes(scores, baselines)


def test_an_evaluator_that_misreads_real_images_says_little() -> None:
    (note,) = said({"label_accuracy": 0.7}, LITTLE - 0.01)
    assert note.startswith("label scores say little") and "0.79 of held-out real images" in note and "0.60" in note
    assert (
        said({"label_accuracy": 0.7}, LITTLE) == [] == said({"fd": 1.0}, 0.1) == label_notes({"label_accuracy": 1}, {})
    )


def test_classes_that_it_never_recognises_and_that_are_not_there_are_named() -> None:
    never, without = said({"label_accuracy": 0.7}, 0.9, never_recognised=["owl", "elk"], without_held_out=["emu"])
    assert "recognises no held-out image of owl, elk" in never and "no held-out image is of emu" in without


@pytest.mark.parametrize(
    ("label", "read", "real", "reader", "confident", "says"),
    [
        (0.30, 0.84, 0.62, 0.99, 0.0, "believe the scene reader, which reads real images better"),
        (0.90, 0.30, 0.95, 0.70, 0.9, "believe the label accuracy, which reads real images better"),
        (0.30, 0.84, 0.97, 0.99, 0.0, "believe the scene reader, for the evaluator of labels is sure of 0.00"),
        (0.30, 0.84, 0.97, 0.99, 0.8, "neither goes before the other"),
    ],
)
def test_of_two_that_contradict_each_other_one_is_believed(
    label: float, read: float, real: float, reader: float, confident: float, says: str
) -> None:
    scores = {"label_accuracy": label, "colour_and_form": read, "confident": confident}
    note = said(scores, real, reader)[-1]
    assert says in note and f"({label:.2f})" in note and f"({read:.2f}) contradict each other" in note


def test_fractions_of_what_real_images_get_that_lie_near_do_not_contradict_each_other() -> None:
    """0.62 of 0.62 and 0.96 of 0.99: each evaluator reads as many as it reads of real images."""
    scores = {"label_accuracy": 0.62, "colour_and_form": 0.96, "confident": 0.1}
    assert not any("contradict" in note for note in said(scores, 0.62, 0.99))
    assert said({"label_accuracy": 0.9}, 0.95, 0.99) == []  # nothing was read
