"""`darkroom compare` warns where a better distance comes with more copies of training images."""

from pathlib import Path

import pytest

from darkroom.cli import main
from darkroom.tools.compare.revisions import Results
from darkroom.tools.compare.table import more_copies
from darkroom.tools.compare.verdicts import compare

CARD = {"protocol": {"n_fake": 100}, "treatment": {"seed": 1}}
HONEST = {"fd": 2.0, "fd_se": 0.1, "copies_pixels": 0.01, "copies_pixels_se": 0.01, "ct_pixels": -1.0}


def warning(old: dict[str, float], new: dict[str, float]) -> str:
    results = [Results(name, {"dit": scores}, {"dit": CARD}) for name, scores in (("a", old), ("b", new))]
    return more_copies(*results, compare(*results))


def test_a_better_distance_with_more_copies_is_warned_of_with_both_values():
    copier = {**HONEST, "fd": 1.0, "copies_pixels": 0.25}
    said = warning(HONEST, copier)
    assert "dit.fd is better in b, which copies more" in said and "copies_pixels 25.0% in b, 1.0% in a" in said
    assert "ct_pixels" not in said
    assert "dit.fd is better in b, which copies more" in warning(HONEST, {**HONEST, "fd": 1.0, "ct_pixels": -20.0})
    assert "\N{MINUS SIGN}20.0 in b, \N{MINUS SIGN}1.0 in a" in warning(
        HONEST, {**HONEST, "fd": 1.0, "ct_pixels": -20.0}
    )
    assert "dit.fd is better in a, which copies more" in warning(copier, HONEST)  # also where the older one copies


@pytest.mark.parametrize(
    "changes",
    [
        {"fd": 1.0},  # as many copies
        {"fd": 3.0, "copies_pixels": 0.25},  # worse, and more copies
        {"fd": 1.95, "copies_pixels": 0.25},  # within noise
        {"fd": 1.0, "copies_pixels": 0.03},  # more copies within noise
        {"fd": 1.0, "ct_pixels": -3.5},  # lower within noise
        {"fd": 1.0, "ct_pixels": -1.0},
    ],
)
def test_nothing_is_said_otherwise(changes):
    assert warning(HONEST, {**HONEST, **changes}) == ""


def test_images_that_lie_nearer_by_chance_are_no_copies():
    """C_T fell by far, to what chance alone gives."""
    assert warning({**HONEST, "ct_pixels": 5.0}, {**HONEST, "fd": 1.0, "ct_pixels": -2.0}) == ""


def test_scores_without_copies_compare_as_before():
    assert warning({"fd": 2.0, "fd_se": 0.1}, {"fd": 1.0, "fd_se": 0.1, "copies_pixels": 0.5}) == ""


def test_the_command_says_it(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("params.yaml").touch()
    revisions = {"a": HONEST, "b": {**HONEST, "fd": 1.0, "copies_pixels": 0.25}}
    monkeypatch.setattr(
        "darkroom.tools.compare.seeds.read_results",
        lambda name: Results(name, {"dit": revisions[name]}, {"dit": CARD}),
    )
    assert main(["compare", "a", "b"]) == 0
    assert "\nWarning: dit.fd is better in b" in capsys.readouterr().out
    assert main(["compare", "a", "a"]) == 0
    assert "Warning" not in capsys.readouterr().out
