"""A metric is added by its own file and one line of a table, and is then everywhere.

That is in the metrics file, the card, `darkroom scores`, `darkroom compare` and the page.
"""

import json
from pathlib import Path

import pytest

from additions.brightness import Brightness
from additions.spread import Spread
from darkroom.cli import main
from darkroom.metrics import table
from darkroom.report.inputs import read_inputs
from darkroom.report.page import render
from darkroom.tools.compare.revisions import Results
from darkroom.tools.compare.verdicts import compare
from report.making import change, project
from stages.test_score_decoder import clone, made, originals, score, write_samples  # noqa: F401


@pytest.fixture(autouse=True)
def added(monkeypatch: pytest.MonkeyPatch) -> None:
    """Add the metrics as their lines in the table would."""
    monkeypatch.setattr(table, "SAMPLE_METRICS", (*table.SAMPLE_METRICS, Brightness()))
    monkeypatch.setattr(table, "FEATURE_METRICS", (*table.FEATURE_METRICS, Spread()))


def test_a_new_metric_is_measured_carded_listed_and_compared(clone, capsys):  # noqa: F811
    write_samples()
    scores, card = score()
    assert scores["brightness"] == pytest.approx(originals().__getitems__(range(12)).mean())
    formula = Brightness.scores[0].formula
    assert card["formulas"]["brightness"] == formula and "deviation" in card["formulas"]["brightness_se"]
    Path("params.yaml").touch()
    assert main(["scores"]) == 0
    assert "brightness" in capsys.readouterr().out
    brighter = {**scores, "brightness": scores["brightness"] + 10 * scores["brightness_se"]}
    found = compare(
        Results("x", {"decoder": scores}, {"decoder": card}), Results("y", {"decoder": brighter}, {"decoder": card})
    )
    assert {row.name: row.verdict for row in found}["brightness"].startswith("better by 7.")


def test_a_new_metric_stands_on_the_page(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    project()
    card = json.loads(Path("cards/generator.json").read_text())
    change("metrics/generator.json", brightness=97.25, brightness_se=0.5)
    names = ("brightness", "brightness_se")
    change("cards/generator.json", formulas=card["formulas"] | dict.fromkeys(names, "mean"))
    page = render("title", read_inputs())
    assert "mean brightness" in page and "97.2" in page and Brightness.scores[0].meaning in page
