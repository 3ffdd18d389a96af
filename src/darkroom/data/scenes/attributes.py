"""Compare the things detected in a picture with its caption: colour, form, size and position, each right or wrong.

"A right of B" and "B left of A" describe the same pictures, and so do "A below B" and "B above A". Captions are
compared in a canonical form, in which the left or upper one of two things is first.
"""

from collections.abc import Iterable, Sequence
from itertools import product
from typing import NamedTuple

from darkroom.data.scenes.captions import COUNTS, Description, Words, describe, parse, position, relation, words
from darkroom.data.scenes.scene import Scene, Thing
from darkroom.errors import DarkroomError

ATTRIBUTES = ("colour", "form", "size", "position", "colour_and_form", "as_described")
_MIRRORED = {"right of": "left of", "below": "above"}


class Detection(NamedTuple):
    """A detected thing; x, y: its centre, as fractions of the picture's side, from the left and from the top."""

    colour: str
    form: str
    size: str
    x: float
    y: float


def canonical(description: Description) -> Description:
    """Return the canonical description of the same picture."""
    if description.relation in _MIRRORED:
        return Description(description.things[::-1], relation=_MIRRORED[description.relation])
    return description


def canonical_description(caption: str) -> Description:
    """Return the canonical description of a caption.

    Raises:
        DarkroomError: the text is no caption of a scene, or puts two things of one colour and form in a relation: no
            scene does so, since its caption counts equal things.
    """
    description = parse(caption)
    if len({(thing.colour, thing.form) for thing in description.things}) < len(description.things):
        raise DarkroomError(f"a scene cannot have two things of one colour and form in a relation: {caption!r}.")
    return canonical(description)


def kind(description: Description) -> str:
    """Return the kind of scene of a description: position, count or relation."""
    if description.relation is not None:
        return "relation"
    return "position" if description.position is not None else "count"


def require_scenes(keys: Sequence[str], captions: Sequence[str | None], kinds: Sequence[str]) -> list[Description]:
    """Return the canonical description of each caption.

    Raises:
        DarkroomError: one is no caption of a scene, or of another kind; the message names the key.
    """
    descriptions = []
    for key, caption in zip(keys, captions, strict=True):
        try:
            descriptions.append(canonical_description(caption or ""))
        except DarkroomError as error:
            raise DarkroomError(
                f"{key}: {error} `score_decoder.attributes` needs images of scenes only: set it to none."
            ) from error
        if kind(descriptions[-1]) not in kinds:
            raise DarkroomError(
                f"{key}: {caption!r} has the kind {kind(descriptions[-1])}, which is not in `train_scene_reader.kinds`"
                ", so the reader was not trained on it: add it."
            )
    return descriptions


def described(things: Sequence[Thing]) -> Description | None:
    """Return the canonical description of things; None: no caption describes them.

    No caption describes zero things, more than three things, or three things that are not equal.
    """
    if not 1 <= len(things) <= max(COUNTS) or (len(things) > 2 and len({words(thing) for thing in things}) > 1):
        return None
    return canonical(describe(Scene(tuple(things), (0, 0, 0))))


def compare(description: Description, detections: Sequence[Detection | Thing]) -> dict[str, bool]:
    """Return for each of `ATTRIBUTES` whether the picture agrees with the description.

    colour, form, size: each detected thing has the value of the described thing that it is matched with. Two things are
        matched with two described things by the number of equal words, and in a tie by position. With more or fewer
        than two, every detected thing must have the value of every described thing.
    colour_and_form: both are right, of each thing.
    position: the number of things is right, whatever they are; a single thing is at its position; of two things in a
        relation the matched one is left of or above the other.
    as_described: the canonical description of the picture equals the given one.
    """
    things = [Thing(each.size, each.colour, each.form, each.x, each.y, 0.0) for each in detections]
    placed, pairs = _matched(description, things)
    agrees = {
        name: bool(pairs) and all(getattr(one, name) == getattr(other, name) for one, other in pairs)
        for name in ATTRIBUTES[:3]
    }
    return {
        **agrees,
        "position": placed,
        "colour_and_form": agrees["colour"] and agrees["form"],
        "as_described": described(things) == description,
    }


def rightness(asked_for: Iterable[Description], pictures: Iterable[Sequence[Detection]]) -> dict[str, list[float]]:
    """Return for each of `ATTRIBUTES` and each picture 1 where it agrees with the description, and 0 where not."""
    results = [compare(description, detections) for description, detections in zip(asked_for, pictures, strict=True)]
    return {name: [float(each[name]) for each in results] for name in ATTRIBUTES}


def _matched(description: Description, things: Sequence[Thing]) -> tuple[bool, list[tuple[Words, Words]]]:
    """Return whether number and positions of things are right, and pairs of each thing and its described thing."""
    detected = [words(thing) for thing in things]
    if description.relation is None or len(things) != 2:
        placed = description.relation is None and len(things) == description.count
        placed = placed and description.position in (None, position(things[0]))
        return placed, list(product(description.things, detected))
    actual = relation(*things)
    if actual in _MIRRORED:
        actual, detected = _MIRRORED[actual], detected[::-1]
    pairs, crossed = (list(zip(description.things, order, strict=True)) for order in (detected, detected[::-1]))
    if _shared(crossed) > _shared(pairs):
        return False, crossed
    return actual == description.relation, pairs


def _shared(pairs: Sequence[tuple[Words, Words]]) -> int:
    """Return the number of equal words over all pairs."""
    return sum(getattr(one, name) == getattr(other, name) for one, other in pairs for name in ATTRIBUTES[:3])
