"""A metric is added by its own file and one line of a table, and is then everywhere.

That is on the page; `test_score_decoder.py` has the metrics file, the card, `darkroom scores` and `darkroom compare`.
"""

import json
from pathlib import Path

import pytest

from additions.brightness import Brightness
from additions.spread import Spread
from darkroom.metrics import table
from darkroom.report.inputs import read_inputs
from darkroom.report.page import render
from report.making import change, project


@pytest.fixture
def added(monkeypatch: pytest.MonkeyPatch) -> None:
    """Add the metrics as their lines in the table would."""
    monkeypatch.setattr(table, "SAMPLE_METRICS", (*table.SAMPLE_METRICS, Brightness()))
    monkeypatch.setattr(table, "FEATURE_METRICS", (*table.FEATURE_METRICS, Spread()))


@pytest.mark.usefixtures("added")
def test_a_new_metric_stands_on_the_page(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    project()
    card = json.loads(Path("cards/generator.json").read_text())
    change("metrics/generator.json", brightness=97.25, brightness_se=0.5)
    names = ("brightness", "brightness_se")
    change("cards/generator.json", formulas=card["formulas"] | dict.fromkeys(names, "mean"))
    page = render("title", read_inputs())
    assert "mean brightness" in page and "97.2" in page and Brightness.scores[0].meaning in page
