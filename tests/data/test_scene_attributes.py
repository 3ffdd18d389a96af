"""What is seen in a picture against its caption: each attribute alone, whatever order things are named or seen in."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from darkroom.data.scenes.attributes import (
    ATTRIBUTES,
    canonical,
    canonical_description,
    compare,
    described,
    require_scenes,
    rightness,
)
from darkroom.data.scenes.captions import POSITIONS, Description, caption, describe, parse
from darkroom.data.scenes.scene import COLOURS, FORMS, KINDS, RADII, Thing, scene
from darkroom.errors import DarkroomError

SCENES = st.builds(scene, st.integers(0, 2**32), st.integers(0, 2**40))
NONE = dict.fromkeys(ATTRIBUTES, True)


def things(text):
    """Return things that a caption is true of."""
    said = parse(text)
    if said.relation is not None:
        along, across = (0.25, 0.75) if said.relation in ("left of", "above") else (0.75, 0.25), (0.5, 0.55)
        axes = (along, across) if said.relation in ("left of", "right of") else (across, along)
        centres = list(zip(*axes, strict=True))
    elif said.position is not None:
        column, row = next(place for place, name in POSITIONS.items() if name == said.position)
        centres = [(0.2 + 0.3 * column, 0.2 + 0.3 * row)]
    else:
        centres = [(0.2 + 0.3 * number, 0.5) for number in range(said.count)]
    named = said.things if said.relation is not None else said.things * said.count
    return [Thing(each.size, each.colour, each.form, *centre, 0.1) for each, centre in zip(named, centres, strict=True)]


def wrong(text, seen):
    """Return which attributes are not as said."""
    return {name for name, right in compare(canonical_description(text), seen).items() if not right}


ONE, TWO, RELATED = (
    "a small red circle at the top left",
    "two large blue stars",
    "a small red circle left of a large blue square",
)


@given(SCENES, st.randoms())
def test_a_scene_is_as_its_caption_says_in_whatever_order_its_things_are_seen(found, random):
    seen = list(found.objects)
    random.shuffle(seen)
    assert compare(canonical_description(caption(found)), seen) == NONE


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("a small red circle right of a large blue star", "a large blue star left of a small red circle"),
        ("a small red circle below a large blue star", "a large blue star above a small red circle"),
    ],
)
def test_two_sentences_of_one_picture_ask_for_the_same(one, other):
    assert canonical_description(one) == canonical_description(other) == parse(other) and canonical_description(
        one
    ) != parse(one)
    assert not wrong(one, things(other)) and not wrong(other, things(one))


@given(SCENES)
def test_the_canonical_way_is_left_of_or_above_and_stays(found):
    said = canonical(describe(found))
    assert said.relation in (None, "left of", "above") and canonical(said) == said
    before = describe(found)
    assert (said.position, said.count, set(said.things)) == (before.position, before.count, set(before.things))


@given(SCENES, st.data())
def test_one_wrong_word_of_a_thing_lowers_that_attribute_alone(found, data):
    seen, said = list(found.objects), canonical_description(caption(found))
    at = data.draw(st.integers(0, len(seen) - 1))
    name, values = data.draw(st.sampled_from([("colour", COLOURS), ("form", FORMS), ("size", RADII)]))
    used = {getattr(thing, name) for thing in seen}
    if not (left := [value for value in values if value not in used]):
        return
    seen[at] = replace(seen[at], **{name: data.draw(st.sampled_from(left))})
    expected = {name, "as_described"} | ({"colour_and_form"} if name != "size" else set())
    missed = {attribute for attribute, right in compare(said, seen).items() if not right}
    assert missed == expected


@pytest.mark.parametrize(
    ("text", "picture", "missed"),
    [
        (ONE, "a small red circle at the top", {"position"}),
        (
            ONE,
            "a small red circle left of a large blue square",
            {"colour", "form", "size", "colour_and_form", "position"},
        ),
        (ONE, "two small red circles", {"position"}),
        (RELATED, "a small red circle in the centre", {"colour", "form", "size", "colour_and_form", "position"}),
        (TWO, "three large blue stars", {"position"}),
        (TWO, "a large blue star left of a small blue star", {"size"}),
        (RELATED, "two small red circles", {"colour", "form", "size", "colour_and_form"}),
        (RELATED, "a large blue square left of a small red circle", {"position"}),
        (RELATED, "a small red circle above a large blue square", {"position"}),
        # All words are there, and some of the other thing: told by the two others, each is where it should be.
        (RELATED, "a small red square left of a large blue circle", {"form", "colour_and_form"}),
        (RELATED, "a large red circle left of a small blue square", {"size"}),
        (RELATED, "a large blue square right of a small red square", {"form", "colour_and_form"}),
        (RELATED, "a large green square left of a small red circle", {"colour", "colour_and_form", "position"}),
        (RELATED, "a small red circle left of a large red square", {"colour", "colour_and_form"}),
    ],
)
def test_what_is_wrong_is_told_apart(text, picture, missed):
    assert wrong(text, things(picture)) == missed | {"as_described"}


def test_nothing_too_much_and_a_mixture_are_no_scene():
    three = things("three large blue stars")
    for seen in ([], [*three, three[0]], [*three[:2], replace(three[2], colour="red")]):
        assert described(seen) is None
    assert wrong(TWO, []) == set(ATTRIBUTES)
    assert wrong("three large blue stars", [*three, three[0]]) == {"position", "as_described"}


@pytest.mark.parametrize("text", ["a handwritten seven", "", "a small red circle left of a large red circle"])
def test_a_caption_that_no_scene_has_is_refused_with_its_key(text):
    with pytest.raises(DarkroomError, match=r"^shapes-7: .*`score_decoder\.attributes`.*none") as told:
        require_scenes(["shapes-6", "shapes-7"], [ONE, text], KINDS)
    assert repr(text) in str(told.value) or text == ""


def test_a_missing_caption_and_a_kind_that_was_not_learned_are_refused_with_their_key():
    with pytest.raises(DarkroomError, match=r"^shapes-6: "):
        require_scenes(["shapes-6"], [None], KINDS)
    with pytest.raises(DarkroomError, match=r"^shapes-6: .*kind count, which is not in `train_scene_reader\.kinds`"):
        require_scenes(["shapes-6"], [TWO], ["position", "relation"])
    assert require_scenes(["a", "b"], [ONE, TWO], KINDS) == [parse(ONE), Description(parse(TWO).things, count=2)]


def test_each_picture_is_right_or_not_in_each_attribute():
    found = rightness(
        [canonical_description(ONE), canonical_description(TWO)], [things(ONE), things("two large red stars")]
    )
    assert found["colour"] == [1, 0] and found["form"] == [1, 1] and found["as_described"] == [1, 0]
