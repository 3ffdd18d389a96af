"""Compare the things detected in a picture with its caption: colour, form, size and position, each right or wrong.

"A right of B" and "B left of A" describe the same pictures, and so do "A below B" and "B above A". Captions are
compared in a canonical form, in which the left or upper one of two things is first.
"""

from collections.abc import Iterable, Sequence
from itertools import product
from typing import NamedTuple

from darkroom.data.scenes.captions import (
    COUNTS,
    Description,
    Words,
    caption_of_description,
    describe,
    parse,
    position,
    relation,
    words,
)
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


def canonical(said: Description) -> Description:
    """Return the canonical description of the same picture."""
    if said.relation in _MIRRORED:
        return Description(said.things[::-1], relation=_MIRRORED[said.relation])
    return said


def canonical_description(caption: str) -> Description:
    """Return the canonical description of a caption.

    Raises:
        DarkroomError: the text is no caption of a scene, or puts two things of one colour and form in a relation: no
            scene does so, since its caption counts equal things.
    """
    said = parse(caption)
    if len({(thing.colour, thing.form) for thing in said.things}) < len(said.things):
        raise DarkroomError(
            f"a scene cannot have two things of one colour and form in a relation: {caption_of_description(said)!r}."
        )
    return canonical(said)


def kind(said: Description) -> str:
    """Return the kind of scene of a description: position, count or relation."""
    if said.relation is not None:
        return "relation"
    return "position" if said.position is not None else "count"


def require_scenes(keys: Sequence[str], captions: Sequence[str | None], kinds: Sequence[str]) -> list[Description]:
    """Return the canonical description of each caption.

    Raises:
        DarkroomError: one is no caption of a scene, or of another kind; the message names the key.
    """
    found = []
    for key, caption in zip(keys, captions, strict=True):
        try:
            found.append(canonical_description(caption or ""))
        except DarkroomError as error:
            raise DarkroomError(
                f"{key}: {error} `score_decoder.attributes` needs images of scenes only: set it to none."
            ) from error
        if kind(found[-1]) not in kinds:
            raise DarkroomError(
                f"{key}: {caption!r} has the kind {kind(found[-1])}, which is not in `train_scene_reader.kinds`, "
                "so the reader was not trained on it: add it."
            )
    return found


def described(things: Sequence[Thing]) -> Description | None:
    """Return the canonical description of things; None: no caption describes them.

    No caption describes no thing, more than three things, or three things that are not equal.
    """
    if not 1 <= len(things) <= max(COUNTS) or (len(things) > 2 and len({words(thing) for thing in things}) > 1):
        return None
    return canonical(describe(Scene(tuple(things), (0, 0, 0))))


def compare(said: Description, seen: Sequence[Detection | Thing]) -> dict[str, bool]:
    """Return for each of `ATTRIBUTES` whether the picture agrees with the description.

    colour, form, size: each detected thing has the value of the described thing that it is matched with. Two things are
        matched with two described things by the number of equal words, and in a tie by position. With more or fewer
        than two, every detected thing must have the value of every described thing.
    colour_and_form: both are right, of each thing.
    position: the number of things is right, whatever they are; a single thing is at its position; of two things in a
        relation the matched one is left of or above the other.
    as_described: the canonical description of the picture equals the given one.
    """
    things = [Thing(one.size, one.colour, one.form, one.x, one.y, 0.0) for one in seen]
    placed, pairs = _matched(said, things)
    same = {
        name: bool(pairs) and all(getattr(one, name) == getattr(other, name) for one, other in pairs)
        for name in ATTRIBUTES[:3]
    }
    return {
        **same,
        "position": placed,
        "colour_and_form": same["colour"] and same["form"],
        "as_described": described(things) == said,
    }


def rightness(asked_for: Iterable[Description], pictures: Iterable[Sequence[Detection]]) -> dict[str, list[float]]:
    """Return for each of `ATTRIBUTES` and each picture 1 where it agrees with the description, and 0 where not."""
    found = [compare(said, seen) for said, seen in zip(asked_for, pictures, strict=True)]
    return {name: [float(each[name]) for each in found] for name in ATTRIBUTES}


def _matched(said: Description, things: Sequence[Thing]) -> tuple[bool, list[tuple[Words, Words]]]:
    """Return whether number and positions of things are right, and pairs of each thing and its described thing."""
    found = [words(thing) for thing in things]
    if said.relation is None or len(things) != 2:
        placed = said.relation is None and len(things) == said.count
        placed = placed and said.position in (None, position(things[0]))
        return placed, list(product(said.things, found))
    way = relation(*things)
    if way in _MIRRORED:
        way, found = _MIRRORED[way], found[::-1]
    pairs, crossed = (list(zip(said.things, order, strict=True)) for order in (found, found[::-1]))
    if _shared(crossed) > _shared(pairs):
        return False, crossed
    return way == said.relation, pairs


def _shared(pairs: Sequence[tuple[Words, Words]]) -> int:
    """Return the number of equal words over all pairs."""
    return sum(getattr(one, name) == getattr(other, name) for one, other in pairs for name in ATTRIBUTES[:3])
