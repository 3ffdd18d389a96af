"""What limits the result, of made-up scores: one verdict for each cause."""

import pytest

from darkroom.report.curves import Curve, Training
from darkroom.report.inputs import read_inputs
from darkroom.report.limit_log import print_limit
from darkroom.report.limits import limit
from darkroom.report.page import render

GOOD = {
    **{"fd": 3.0, "fd_debiased": 3.0, "fd_se": 0.1, "precision": 0.8, "precision_se": 0.02},
    **{"diversity": 2.0, "diversity_se": 0.05, "copies_moved": 0.01, "copies_moved_se": 0.005},
}
FLOOR = {"n": 260, "fd": 1.1, "fd_debiased": 1.0, "fd_se": 0.2, "precision": 0.8, "precision_se": 0.02}
CARD = {
    "baselines": {
        "held_out": {"in_domain": FLOOR},
        "diversity": {"diversity": 2.0, "diversity_se": 0.05, "n": 100},
        "copies": {"copies_moved": 0.01, "copies_moved_se": 0.005},
    },
    "treatment": {"sampler": {"guidance": 2.0}},
}
FALLING, FLAT, RISING = [(1, 4.0), (2, 3.0), (3, 2.5), (4, 2.0)], [(1, 4.0), (2, 2.0), (3, 1.99), (4, 2.0)], [
    *[(1, 2.0), (2, 1.0), (3, 1.1), (4, 1.2), (5, 1.3)]
]  # fmt: skip
LOSSES = {"train": [(4, 1.0)], "val": [(4, 1.1)]}


def training(name, judged, train=LOSSES["train"], val=LOSSES["val"]):
    judge = "eval/fd_debiased" if name == "generator" else "val/loss"
    curves = [Curve(tuple(points)) for points in (train, val, judged)]
    return Training(name, *curves[:2], Curve(), Curve(), Curve(), {}, {}, judge, curves[2], Curve())


@pytest.mark.parametrize(
    ("scores", "rfd", "curves", "name", "says"),
    [
        ({}, 0.1, {"generator": FALLING}, "length", "still fell, to 2 from 3 at half of the images. Double"),
        ({}, 0.81, {"generator": FALLING}, "tokenizer", "`rfd`, 0.8100, is 40% of what the distance (3.00, of"),
        ({}, 0.79, {"generator": FALLING}, "length", "`train_generator.training`: twice its time"),
        ({}, 5.0, {"tokenizer": FALLING}, "tokenizer", "is 100% of what"),
        ({}, 5.0, {"tokenizer": FLAT}, "tokenizer", "more channels"),
        ({"copies_moved": 0.1}, 5.0, {}, "data", "10.0% of the images are copies of training images, of held-out"),
        ({"diversity": 1.5}, 0.1, {"generator": FALLING}, "guidance", "Lower `guidance`"),
        ({"diversity": 1.5, "precision": 0.7}, 0.1, {"generator": FALLING}, "length", "Double the `images`"),
        ({"fd_debiased": 1.3}, 5.0, {"generator": FALLING}, "nothing", "not above that of real images, within noise"),
        ({}, 0.1, {}, "unknown", "no curve of the generator"),
        ({}, 0.1, {"generator": FLAT}, "size", "Raise `width` and `depth`"),
        ({}, 0.1, {"generator": RISING}, "size", "no longer falls"),
    ],
)  # fmt: skip
def test_each_cause_is_named_with_what_to_change(scores, rfd, curves, name, says):
    trainings = {each: training(each, points) for each, points in curves.items()}
    verdict = limit(GOOD | scores, CARD, {"rfd": rfd}, trainings)
    assert verdict.name == name and says in verdict.text


def test_a_generator_that_knows_its_own_images_better_needs_more_of_them():
    trainings = {"generator": training("generator", FLAT, val=[(4, 1.3)])}
    verdict = limit(GOOD, CARD, {"rfd": 0.1}, trainings)
    assert verdict.name == "data" and verdict.text.endswith("of training images 1. Add images.")


def test_without_guidance_or_a_card_or_images_nothing_is_invented():
    few, plain = GOOD | {"diversity": 1.5}, CARD | {"treatment": {"sampler": {"guidance": 1.0}}}
    assert limit(few, plain, {}, {}).name == "unknown"
    assert limit(few, {}, {}, {}).text.startswith(
        "Unknown: no curve of the generator shows whether the distance (3.00)"
    )
    assert limit({}, CARD, {"rfd": 1.0}, {}) is None


def test_a_distance_from_held_out_images_has_a_floor_of_its_own():
    scores = GOOD | {"fd_held_out": 1.2, "fd_held_out_debiased": 1.1, "fd_held_out_se": 0.1}
    card = CARD | {"baselines": CARD["baselines"] | {"train": {"in_domain": FLOOR}}}
    assert limit(scores, card, {"rfd": 1.0}, {}).name == "nothing"


def test_the_page_and_the_log_say_the_same(made, capsys):
    html = render("Digits", read_inputs())
    print_limit()
    distance = "the distance (4.110, of held-out real images 1.4) was still falling."
    sentence = f"Unknown: no curve of the generator shows whether {distance}"
    assert f"<strong>What limits the result.</strong> {sentence}" in html
    assert capsys.readouterr().out == f"what limits the result: {sentence}\n"
