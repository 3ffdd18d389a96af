"""Convert scenes to descriptions, descriptions to captions, and captions to descriptions."""

from dataclasses import dataclass
from functools import cache

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
_NAMES = {colour: name for name, colour in COLOURS.items()}


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
    background: the colour behind one thing that fills the picture, of which it says neither size nor position.
    """

    things: tuple[Words, ...]
    count: int = 1
    position: str | None = None
    relation: str | None = None
    background: str | None = None


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
    if scene.background in _NAMES:
        return Description((words(first),), background=_NAMES[scene.background])
    if not others:
        return Description((words(first),), position=position(first))
    if words(first) == words(others[0]):
        return Description((words(first),), count=len(scene.objects))
    return Description((words(first), words(others[0])), relation=relation(first, others[0]))


def caption_of_description(description: Description) -> str:
    """Return the caption of a description: "a small red circle left of a large blue square"."""
    first = description.things[0]
    if description.background is not None:
        return f"{'an' if first.colour[0] in 'aeiou' else 'a'} {first.colour} {first.form} on {description.background}"
    names = [f"{thing.size} {thing.colour} {thing.form}" for thing in description.things]
    if description.relation is not None:
        return f"a {names[0]} {description.relation} a {names[1]}"
    if description.position is not None:
        return f"a {names[0]} {description.position}"
    return f"{COUNTS[description.count]} {names[0]}{_plural(first.form)}"


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
        DarkroomError: the text is no caption of a scene of the kinds position, count and relation.
    """
    description = _descriptions().get(caption)
    if description is None:
        raise DarkroomError(f"{caption!r} is not the caption of a scene of the kinds position, count and relation.")
    return description


@cache
def _descriptions() -> dict[str, Description]:
    """Return all descriptions but those with a background, about 38,000, by their captions."""
    things = [Words(size, colour, form) for size in RADII for colour in COLOURS for form in FORMS]
    descriptions = [Description((words,), position=place) for words in things for place in POSITIONS.values()]
    descriptions += [Description((words,), count) for words in things for count in COUNTS]
    descriptions += [Description((a, b), relation=relation) for a in things for b in things for relation in RELATIONS]
    return {caption_of_description(each): each for each in descriptions}


def _plural(form: str) -> str:
    return "es" if form.endswith("s") else "s"
