"""Captions of scenes: a scene to a description, a description to a caption, and a caption to its description."""

from dataclasses import dataclass

from darkroom.data.scenes.scene import COLOURS, FORMS, RADII, RELATIONS, Scene, Thing
from darkroom.errors import DarkroomError

# By column and row: the thirds of `scene.BANDS`, with borders half-way between the bands.
POSITIONS = {
    (0, 0): "at the top left",
    (1, 0): "at the top",
    (2, 0): "at the top right",
    (0, 1): "at the left",
    (1, 1): "in the centre",
    (2, 1): "at the right",
    (0, 2): "at the bottom left",
    (1, 2): "at the bottom",
    (2, 2): "at the bottom right",
}
BORDERS = (0.375, 0.625)
COUNTS = {2: "two", 3: "three"}


@dataclass(frozen=True)
class Words:
    """The description of one thing: its size, colour and form."""

    size: str
    colour: str
    form: str


@dataclass(frozen=True)
class Description:
    """A description: of one thing its position, of several equal things their number, of two things their relation.

    things: one thing, or two things with a relation.
    """

    things: tuple[Words, ...]
    count: int = 1
    position: str | None = None
    relation: str | None = None


def words(thing: Thing) -> Words:
    """Return the description of one thing."""
    return Words(thing.size, thing.colour, thing.form)


def position(thing: Thing) -> str:
    """Return the position of the centre of a thing as words: "at the top left"."""
    column, row = (sum(value >= border for border in BORDERS) for value in (thing.x, thing.y))
    return POSITIONS[column, row]


def relation(first: Thing, second: Thing) -> str:
    """Return the relation of the first thing to the second, along the axis of the longer distance of their centres."""
    x, y = second.x - first.x, second.y - first.y
    if abs(x) >= abs(y):
        return "left of" if x > 0 else "right of"
    return "above" if y > 0 else "below"


def describe(scene: Scene) -> Description:
    """Return the description of a scene."""
    first, *others = scene.objects
    if not others:
        return Description((words(first),), position=position(first))
    if words(first) == words(others[0]):
        return Description((words(first),), count=len(scene.objects))
    return Description((words(first), words(others[0])), relation=relation(first, others[0]))


def caption_of_description(said: Description) -> str:
    """Return the caption of a description: "a small red circle left of a large blue square"."""
    names = [f"{thing.size} {thing.colour} {thing.form}" for thing in said.things]
    if said.relation is not None:
        return f"a {names[0]} {said.relation} a {names[1]}"
    if said.position is not None:
        return f"a {names[0]} {said.position}"
    return f"{COUNTS[said.count]} {names[0]}{_plural(said.things[0].form)}"


def caption(scene: Scene) -> str:
    """Return the caption of a scene."""
    return caption_of_description(describe(scene))


def label(scene: Scene) -> str:
    """Return the class of a scene: colour and form of its first thing, "red circle"."""
    first = scene.objects[0]
    return f"{first.colour} {first.form}"


def parse(caption: str) -> Description:
    """Return the description of a caption, the inverse of `caption_of_description`.

    Raises:
        DarkroomError: the text is no caption of a scene.
    """
    for found in _readings(caption):
        if caption_of_description(found) == caption:
            return found
    raise DarkroomError(f"not the caption of a scene: {caption!r}.")


def _readings(caption: str) -> list[Description]:
    """Return candidate descriptions of a text; `parse` returns the one whose caption is the text."""
    number, *rest = caption.split(" ")
    for count, word in COUNTS.items():
        if number == word and len(rest) == 3:
            return [
                Description((Words(rest[0], rest[1], form),), count) for form in FORMS if _valid(rest[0], rest[1], form)
            ]
    if len(rest) < 5 or not _valid(*rest[:3]):
        return []
    first, tail = Words(*rest[:3]), " ".join(rest[3:])
    if tail in POSITIONS.values():
        return [Description((first,), position=tail)]
    if not _valid(*rest[-3:]):
        return []
    return [Description((first, Words(*rest[-3:])), relation=way) for way in RELATIONS]


def _valid(size: str, colour: str, form: str) -> bool:
    return size in RADII and colour in COLOURS and form in FORMS


def _plural(form: str) -> str:
    return "es" if form.endswith("s") else "s"
