"""What is seen in a picture against what its caption says: colour, form, size and position, each right or not.

"A right of B" and "B left of A" are two sentences and one picture, which shows no order of naming; so are "A below B"
and "B above A". What is compared is said in one way, the canonical one: of two things the left or upper one is first.
"""

from collections.abc import Iterable, Sequence
from itertools import product
from typing import Protocol

from darkroom.data.scenes.captions import COUNTS, Facts, Words, facts, parse, position, relation, sentence, words
from darkroom.data.scenes.scene import Scene, Thing
from darkroom.errors import DarkroomError

ATTRIBUTES = ("colour", "form", "size", "position", "colour_and_form", "as_described")
_MIRRORED = {"right of": "left of", "below": "above"}


class Placed(Protocol):
    """A thing with its centre: of a scene, or seen in a picture."""

    @property
    def colour(self) -> str:
        """Its name."""
        ...

    @property
    def form(self) -> str:
        """Its name."""
        ...

    @property
    def size(self) -> str:
        """Its name."""
        ...

    @property
    def x(self) -> float:
        """Share of the picture's width, to the right."""
        ...

    @property
    def y(self) -> float:
        """Share of its height, downwards."""
        ...


def canonical(said: Facts) -> Facts:
    """Return the facts of the same picture, said in the one way that all sentences which are true of it share."""
    if said.relation in _MIRRORED:
        return Facts(said.things[::-1], relation=_MIRRORED[said.relation])
    return said


def asked(caption: str) -> Facts:
    """Return what a caption asks for, in the canonical way.

    Raises:
        DarkroomError: no caption of a scene, or of two things of one colour and form in a relation, which no scene has:
            where there are two such things, the caption says how many.
    """
    said = parse(caption)
    if len({(thing.colour, thing.form) for thing in said.things}) < len(said.things):
        raise DarkroomError(f"no scene has two things of one colour and form in a relation: {sentence(said)!r}.")
    return canonical(said)


def kind(said: Facts) -> str:
    """Return the kind of scene that facts are said of: position, count or relation."""
    if said.relation is not None:
        return "relation"
    return "position" if said.position is not None else "count"


def require_scenes(keys: Sequence[str], captions: Sequence[str | None], kinds: Sequence[str]) -> list[Facts]:
    """Return what each caption asks for, in the canonical way.

    Args:
        keys: of the images.
        captions: of the images.
        kinds: of the scenes that whoever looks has learned to read.

    Raises:
        DarkroomError: one is no caption of a scene, or of another kind; names the key.
    """
    found = []
    for key, caption in zip(keys, captions, strict=True):
        try:
            found.append(asked(caption or ""))
        except DarkroomError as error:
            raise DarkroomError(
                f"{key}: {error} `score_decoder.attributes` can be scenes only where all images are: set it to none."
            ) from error
        if kind(found[-1]) not in kinds:
            raise DarkroomError(
                f"{key}: {caption!r} is of the kind {kind(found[-1])}, which `train_scene_reader.kinds` does not name, "
                "so the reader has not learned to read it: add it."
            )
    return found


def described(things: Sequence[Thing]) -> Facts | None:
    """Return what a caption says of things, in the canonical way; None: no caption says such a thing.

    None is for no thing, for more than three, and for three that are not equal.
    """
    if not 1 <= len(things) <= max(COUNTS) or (len(things) > 2 and len({words(thing) for thing in things}) > 1):
        return None
    return canonical(facts(Scene(tuple(things), (0, 0, 0))))


def compare(said: Facts, seen: Sequence[Placed]) -> dict[str, bool]:
    """Return for each of `ATTRIBUTES` whether it is as said.

    colour, form, size: each thing that is seen has that of the thing it was asked for as. Of two things both must, and
        they are told apart by the words that they share with those asked for, and where these leave it open by their
        places. Where there are more or fewer than two, all must have that of each thing asked for.
    colour_and_form: both, of each thing.
    position: there are as many things as asked for, whatever they are; one is at its place; of two in a relation the
        right one is left of or above the other.
    as_described: the caption of the picture is the one given, in the canonical way.

    Args:
        said: as `asked` gives it.
        seen: the things in the picture, in any order.
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


def rightness(asked_for: Iterable[Facts], pictures: Iterable[Sequence[Placed]]) -> dict[str, list[float]]:
    """Return for each of `ATTRIBUTES`, picture by picture, 1 where it is as asked for and 0 where it is not."""
    found = [compare(said, seen) for said, seen in zip(asked_for, pictures, strict=True)]
    return {name: [float(each[name]) for each in found] for name in ATTRIBUTES}


def _matched(said: Facts, things: Sequence[Thing]) -> tuple[bool, list[tuple[Words, Words]]]:
    """Return whether things are where and as many as asked for, and each of them with what it was asked for as."""
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
    """Return how many words are the same, pair by pair."""
    return sum(getattr(one, name) == getattr(other, name) for one, other in pairs for name in ATTRIBUTES[:3])
