"""What stands beside a score on the page: of Inception's own scores, of diversity, of classes that are left out."""

import json
from pathlib import Path
from typing import Any

import pytest

from darkroom.report.inputs import read_inputs
from darkroom.report.page import render
from report.making import BASELINES, FLOOR, Page, change, project

SFID = {"sfid": 30.5, "sfid_debiased": 28.25, "sfid_se": 1.5, "inception_score": 3.75, "inception_score_se": 0.125}
DIVERSITY = {"diversity": 0.625, "diversity_se": 0.03125}


@pytest.fixture
def inception(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Go to a folder with Inception's scores."""
    monkeypatch.chdir(tmp_path)
    project(inception=True)


def with_scores(scores: dict[str, float], **card: Any) -> None:
    formulas = json.loads(Path("cards/generator.json").read_text())["formulas"]
    change("metrics/generator.json", **scores)
    change("cards/generator.json", formulas=formulas | dict.fromkeys(scores, "as it is"))
    found = json.loads(Path("cards/generator.json").read_text())
    for part, entries in card.items():
        found[part] |= entries
    Path("cards/generator.json").write_text(json.dumps(found))


def page() -> Page:
    return Page(render("title", read_inputs()))


@pytest.mark.usefixtures("inception")
def test_inceptions_own_scores_stand_beside_those_of_real_images() -> None:
    floor = {"n": 38, **FLOOR, "sfid": 20.5, "sfid_debiased": 18.25, "sfid_se": 2.5, "inception_score": 4.25}
    floors = {"in_domain": BASELINES["held_out"]["in_domain"], "inception": {**floor, "inception_score_se": 0.25}}
    with_scores(SFID, baselines={"held_out": floors})
    found = page()
    assert [value for value, _ in found.rows["sfid"]] == [30.5, 1.5, 20.5, 2.5]
    assert [value for value, _ in found.rows["sfid_debiased"]][:3] == [28.25, 1.5, 18.25]
    assert [value for value, _ in found.rows["inception_score"]] == [3.75, 0.125, 4.25, 0.25]
    assert "sFID: the Fréchet distance in Inception" in found.text and not found.faults


@pytest.mark.usefixtures("inception")
def test_without_a_floor_they_stand_alone() -> None:
    with_scores(SFID, baselines={"held_out": {}})
    assert [value for value, _ in page().rows["inception_score"]] == [3.75, 0.125]


def test_diversity_stands_beside_that_of_real_pairs(made: Path) -> None:
    real = {"n": 17, "diversity": 0.75, "diversity_se": 0.0625}
    pairs = {"pairs": 20, "pairs_held_out": 17, "seed": 0}
    with_scores(DIVERSITY, baselines={"diversity": real}, protocol={"diversity": pairs})
    found = page()
    assert [value for value, _ in found.rows["diversity"]] == [0.625, 0.03125, 0.75, 0.0625]
    assert "20 pairs" in found.text and "17 pairs" in found.text and "the model repeats itself" in found.text
