"""Scenes: their captions are true of the pixels, their bits stay, and captions can be read back."""

import hashlib
from collections.abc import Iterator
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from darkroom.data.scenes.captions import (
    BORDERS,
    COUNTS,
    POSITIONS,
    Description,
    Words,
    caption,
    caption_of_description,
    describe,
    label,
    parse,
    position,
    relation,
)
from darkroom.data.scenes.rendering import coverage, render
from darkroom.data.scenes.scene import (
    BACKGROUNDS,
    COLOURS,
    FORMS,
    GAP,
    KINDS,
    MARGIN,
    RADII,
    RELATIONS,
    Scene,
    Thing,
    scene,
)
from darkroom.errors import DarkroomError

SCENES = [scene(3, index) for index in range(300)]
NAMES = st.builds(Words, st.sampled_from(tuple(RADII)), st.sampled_from(tuple(COLOURS)), st.sampled_from(FORMS))
FACTS = st.one_of(
    st.builds(Description, st.tuples(NAMES), position=st.sampled_from(tuple(POSITIONS.values()))),
    st.builds(Description, st.tuples(NAMES), count=st.sampled_from(tuple(COUNTS))),
    st.builds(Description, st.tuples(NAMES, NAMES), relation=st.sampled_from(RELATIONS)),
)


@given(FACTS)
def test_a_caption_is_read_back(said: Description) -> None:
    assert parse(caption_of_description(said)) == said


@given(st.integers(0, 2**32), st.integers(0, 2**40))
def test_so_is_that_of_a_scene(seed: int, index: int) -> None:
    found = scene(seed, index)
    assert parse(caption(found)) == describe(found)
    assert label(found).split() == [found.objects[0].colour, found.objects[0].form]


PIECES = ("a", "two", "small", "red", "blue", "ring", "rings", "left", "of", "at the", "top")


@given(st.text(max_size=60) | st.lists(st.sampled_from(PIECES)).map(" ".join))
def test_what_is_read_is_a_caption_and_all_else_is_refused(text: str) -> None:
    try:
        said = parse(text)
    except DarkroomError as error:
        assert repr(text) in str(error)
    else:
        assert caption_of_description(said) == text


def test_a_scene_is_its_number_alone() -> None:
    alone = scene(3, 17)
    assert alone == SCENES[17] and scene(4, 17) != alone
    assert {len(describe(scene(3, n, ["relation"])).things) for n in range(20)} == {2}
    kinds = [describe(scene(3, n, ["position", "count"])) for n in range(40)]
    assert {said.position is None for said in kinds} == {True, False} and all(said.relation is None for said in kinds)


def test_all_words_come_up() -> None:
    said = [describe(one) for one in SCENES]
    assert {each.position for each in said} == {None, *POSITIONS.values()}
    assert {each.relation for each in said} == {None, *RELATIONS}
    assert {each.count for each in said} == {1, 2, 3}
    names = [name for each in said for name in each.things]
    assert {name.size for name in names} == set(RADII)
    assert {(name.colour, name.form) for name in names} == {(colour, form) for colour in COLOURS for form in FORMS}
    assert {one.background for one in SCENES} == set(BACKGROUNDS)
    fractions = [
        sum(part) / len(said) for part in zip(*[(e.position is None, e.relation is None) for e in said], strict=True)
    ]
    assert all(0.55 < share < 0.78 for share in fractions)


def faults(one: Scene) -> Iterator[str]:
    """Yield what is wrong with the places of the things in a scene."""
    for thing in one.objects:
        low, high = RADII[thing.size]
        if not low <= thing.radius <= high:
            yield "size"
        if not all(thing.radius + MARGIN <= value <= 1 - thing.radius - MARGIN for value in (thing.x, thing.y)):
            yield "not whole"
    for first, second in combinations(one.objects, 2):
        far = max(abs(first.x - second.x), abs(first.y - second.y))
        if far < first.radius + second.radius + GAP - 1e-12:
            yield "not apart"
    said = describe(one)
    if said.position:
        (thing,) = one.objects
        if any(abs(value - border) < 0.05 for value in (thing.x, thing.y) for border in BORDERS):
            yield "position"
    if said.relation:
        first, second = one.objects
        along, across = sorted([abs(first.x - second.x), abs(first.y - second.y)], reverse=True)
        if along < 2 * across or (first.colour, first.form) == (second.colour, second.form):
            yield "relation"


def test_things_are_apart_whole_and_clearly_where_they_are_said_to_be() -> None:
    assert [(number, *wrong) for number, one in enumerate(SCENES[:150]) if (wrong := list(faults(one)))] == []


def test_a_single_thing_fills_a_coloured_picture_as_its_caption_says() -> None:
    names = {colour: name for name, colour in COLOURS.items()}
    singles = [scene(3, number, ["single"]) for number in range(300)]
    for one in singles:
        (thing,) = one.objects
        assert 0.34 <= thing.radius <= 0.42
        assert all(thing.radius + MARGIN <= value <= 1 - thing.radius - MARGIN for value in (thing.x, thing.y))
        article, colour, form, on, background = caption(one).split()
        assert article == ("an" if colour == "orange" else "a") and on == "on" and label(one) == f"{colour} {form}"
        pixels = np.asarray(render(one, 64))
        assert names[tuple(pixels[0, 0].tolist())] == background != colour
        assert (pixels == COLOURS[colour]).all(axis=-1).mean() > 0.05
    assert len({caption(one) for one in singles}) > 150
    with pytest.raises(DarkroomError, match="is not the caption of a scene of the kinds"):
        parse(caption(singles[0]))


def seen(one: Scene, size: int) -> list[Thing]:
    """Find the things in a picture by their colours, with centre and half the width of the box."""
    from scipy import ndimage

    pixels = np.asarray(render(one, size, transparent=True))
    found = []
    for name, colour in COLOURS.items():
        covered = (pixels[..., :3] == colour).all(axis=-1) & (pixels[..., 3] >= 128)
        for rows, columns in ndimage.find_objects(ndimage.label(covered, structure=np.ones((3, 3)))[0]):
            x, y = (columns.start + columns.stop) / 2 / size, (rows.start + rows.stop) / 2 / size
            radius = (columns.stop - columns.start) / 2 / size
            found.append(Thing("large" if radius > 0.145 else "small", name, "", x, y, radius))
    return found


def test_captions_are_true_of_the_pixels() -> None:
    for one in SCENES[:150]:
        said, things = parse(caption(one)), seen(one, 128)
        found = sorted((thing.size, thing.colour) for thing in things)
        assert found == sorted((name.size, name.colour) for name in said.things * said.count), caption(one)
        first = next(thing for thing in things if thing.colour == said.things[0].colour)
        if said.position:
            assert position(first) == said.position
        if said.relation and said.things[0].colour != said.things[1].colour:
            (second,) = [thing for thing in things if thing is not first]
            assert relation(first, second) == said.relation


# Areas of the forms in units of the radius squared, by their own formulas.
AREAS = {
    "circle": np.pi,
    "square": (2 * 0.88) ** 2,
    "triangle": np.sqrt(3),
    "star": 10 * np.sin(np.pi / 5) * (np.cos(2 * np.pi / 5) / np.cos(np.pi / 5)) / 2 / np.sin(2 * np.pi / 5) ** 2,
    "cross": 4 * (2 * 0.31) - (2 * 0.31) ** 2,
    "ring": np.pi * (1 - 0.52**2),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("size", [32, 257])
def test_a_form_covers_its_area_within_its_box(form: str, size: int) -> None:
    thing = Thing("large", "red", form, 0.4821, 0.5137, 0.19)
    rows, columns, share = coverage(thing, size)
    whole = np.zeros((size, size))
    whole[rows, columns] = share
    assert whole.sum() == pytest.approx(AREAS[form] * (0.19 * size) ** 2, rel=0.25 / size + 0.02)
    touched = np.argwhere(whole > 0)
    box = np.array([[thing.y, thing.x]]) * size
    assert (np.abs(touched + 0.5 - box) <= 0.19 * size + 1).all()
    reach = np.abs(touched + 0.5 - box).max() / size
    assert reach >= 0.88 * 0.19 - 1 / size
    if form in ("triangle", "star"):  # the tip is above
        top, bottom = touched[:, 0].min(), touched[:, 0].max()
        assert np.ptp(touched[touched[:, 0] == top, 1]) <= 2 < np.ptp(touched[touched[:, 0] == bottom, 1])


def test_a_scene_is_the_same_at_every_size() -> None:
    for one in SCENES[:30]:
        large, small = (np.asarray(render(one, size)).astype(float) for size in (256, 64))
        averaged = large.reshape(64, 4, 64, 4, 3).mean(axis=(1, 3))
        assert np.abs(averaged - small).mean() < 0.3
        assert np.abs(averaged - small).max() < 100  # at the tips of triangles


def test_on_nothing_a_thing_has_its_colour_and_its_share() -> None:
    for one in SCENES[:30]:
        clear, opaque = np.asarray(render(one, 48, transparent=True)), np.asarray(render(one, 48))
        alpha = clear[..., 3:] / 255
        laid = clear[..., :3] * alpha + np.array(one.background) * (1 - alpha)
        assert np.abs(laid - opaque).max() <= 1.5
        assert {tuple(pixel) for pixel in clear[clear[..., 3] > 0][:, :3]} == {COLOURS[t.colour] for t in one.objects}
        assert not clear[clear[..., 3] == 0].any()


def test_the_bits_stay() -> None:
    """Only exactly rounded operations: the same on every machine, for every version of NumPy."""
    digest = hashlib.sha256()
    for one in SCENES[:60]:
        for size, transparent in ((32, False), (65, True)):
            digest.update(render(one, size, transparent).tobytes())
        digest.update(caption(one).encode())
    assert digest.hexdigest() == "8b5c12eaab8922a8e3f3c1c92cbe23986af4c84f21912a1f3df2c823337651bf"


def lab(colour: tuple[int, int, int]) -> np.ndarray:
    """sRGB to CIE 1976 L*a*b* with the white D65."""
    linear = np.array(colour) / 255
    linear = np.where(linear <= 0.04045, linear / 12.92, ((linear + 0.055) / 1.055) ** 2.4)
    matrix = [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
    x, y, z = np.cbrt(np.array(matrix) @ linear / [0.95047, 1.0, 1.08883])
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def test_colours_are_far_from_each_other_and_from_every_background() -> None:
    """2.3 is what an eye just notices."""
    for (first, one), (second, other) in combinations(COLOURS.items(), 2):
        assert np.linalg.norm(lab(one) - lab(other)) > 30, (first, second)
    for name, colour in COLOURS.items():
        for background in BACKGROUNDS:
            assert np.linalg.norm(lab(colour) - lab(background)) > 40, (name, background)


def test_kinds_are_those_of_the_schema_but_single() -> None:
    from typing import get_args

    from darkroom.params.parts import Shapes

    (kind,) = get_args(Shapes.model_fields["kinds"].annotation)
    assert get_args(kind) == (*KINDS, "single")
