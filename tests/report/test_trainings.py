"""What the page shows of trainings: a chart for what was logged, and nothing for what was not."""

import math
import re
import xml.etree.ElementTree as ElementTree
from itertools import pairwise
from pathlib import Path

import pytest

import darkroom.report
from darkroom.report.curves import Curve, read_training
from darkroom.report.inputs import read_inputs
from darkroom.report.page import render
from darkroom.report.trainings import Drawn, drawn
from report.making import BANDS, Page, curve, evaluated

SVG = "{http://www.w3.org/2000/svg}"
CSS = (Path(darkroom.report.__file__).parent / "page.css").read_text()


def dit() -> Drawn:
    return drawn(read_training(Path("curves/generator")))


def shown() -> str:
    found = Page(render("Digits", read_inputs()))
    assert found.faults == []
    return found.text


def lines(chart: str) -> dict[str, list[tuple[float, float]]]:
    """Return the places of a chart's lines by what the key calls them, or by class where there is no key."""
    groups = [g for g in ElementTree.fromstring(chart) if g.tag.endswith("g") and g.get("class")]
    called = {g.get("class"): text.text for g in groups for text in g if text.tag.endswith("text")}
    found = {}
    for group in groups:
        if not any(inner.tag.endswith("text") for inner in group):
            name = str(called.get(group.get("class")) or group.get("class"))
            path = str(group[0].get("d")).removeprefix("M")
            found[name] = [(float(x), float(y)) for x, y in (piece.split() for piece in path.split("L"))]
    return found


def test_each_band_has_its_line_under_its_name(made: Path) -> None:
    evaluated()
    found = lines(dit().bands)
    assert set(found) == {"t 0–25%", "t 25–50%", "t 50–75%", "t 75–100%"}
    firsts = [found[name][0][1] for name in sorted(found, key=lambda name: int(name.split()[1].split("–")[0]))]
    assert firsts == sorted(firsts) and len(set(firsts)) == 4  # 4, 3, 2, 1: lower down, so larger in pixels
    key = re.findall(r'<g class="([^"]+)"><path[^>]*/><text[^>]*>t (\d+)–', dit().bands)
    assert key == [("band-1", "0"), ("band-2", "25"), ("band-3", "50"), ("band-4", "75")]  # in the order of lightness
    assert "0% is data, 100% is noise" in shown() and "has no line" not in shown()


def test_the_loss_of_codes_is_drawn_with_that_of_their_frequencies(made: Path) -> None:
    assert "code frequencies" not in lines(dit().loss) and "code frequencies" not in shown()
    curve(Path("curves/generator"), "val/unigram", [(200, 5.0), (300, 5.0)])
    curve(Path("curves/generator"), "val/uniform", [(200, 6.0), (300, 6.0)])
    curve(Path("curves/generator"), "val/loss", [(200, 4.0), (300, 2.0)])
    assert {"code frequencies", "equal frequencies"} <= set(lines(dit().loss))
    assert "knows only how frequent each code is" in shown() and "a perplexity of 7.389 codes" in shown()
    for split, value in (("train", 2.5), ("val", 3.0)):  # with captions, the loss is also that of their tokens
        curve(Path("curves/generator"), f"{split}/codes", [(300, value)])
    training = read_training(Path("curves/generator"))
    assert (training.train.points, training.val.points) == (((300, 2.5),), ((300, 3.0),))


def test_a_band_without_an_image_has_no_line(made: Path) -> None:
    evaluated()
    Path(f"curves/generator/plots/metrics/val/{BANDS[3]}.tsv").unlink()
    assert set(lines(dit().bands)) == {"t 0–25%", "t 25–50%", "t 50–75%"}
    assert "A band in which no validation image lies has no line." in shown()


def test_what_was_not_logged_leaves_no_chart_and_no_space(made: Path) -> None:
    html = render("Digits", read_inputs())
    section = html[html.index('<section id="curves">') : html.index('<section id="protocol">')]
    assert section.count("<figure") == 5 == section.count("<figcaption") and section.count("<svg") == 10
    assert "decide nothing" not in section and "noise" not in section
    evaluated()
    html = render("Digits", read_inputs())
    section = html[html.index('<section id="curves">') : html.index('<section id="protocol">')]
    assert section.count("<figure") == 7 == section.count("<figcaption") and section.count("<svg") == 13


def test_scores_while_training_are_drawn_and_decide_nothing(made: Path) -> None:
    evaluated()
    distances, accuracy = dit().scores
    assert set(lines(distances)) == {"fd", "fd_debiased"}
    assert set(lines(accuracy)) == {"accuracy"} and "They decide nothing" in shown()


def test_what_clip_finds_while_training_is_drawn(made: Path) -> None:
    assert not drawn(read_training(Path("curves/clip"))).scores
    for name, last in (("zero_shot_accuracy", 0.5), ("image_to_text_r1", 0.25), ("text_to_image_r1", 1.0)):
        curve(Path("curves/clip"), f"eval/{name}", [(100, 0.0), (300, last)])
    (chart,) = drawn(read_training(Path("curves/clip"))).scores
    found = lines(chart)
    heights = {name: points[-1][1] for name, points in found.items()}
    assert heights["image found"] < heights["class found"] < heights["caption found"]


def test_a_score_alone_takes_the_wide_place(made: Path) -> None:
    curve(Path("curves/generator"), "eval/label_accuracy", [(100, 0.5)])
    (accuracy,) = dit().scores
    assert 'viewBox="0 0 460 220"' in accuracy and accuracy.count("<circle") == 1


def test_lowest_validation_loss_is_the_first_of_equals(made: Path) -> None:
    assert Curve(((100, 2.0), (200, 1.0), (300, 1.0), (400, 3.0))).lowest == (200, 1.0)
    curve(Path("curves/generator"), "val/loss", [(1000, 0.5), (2000, 0.25), (3000, "nan"), (4000, 0.75)])
    assert "The lowest validation loss, 0.2500, was seen at image 2,000." in shown()
    assert shown().count("The lowest validation loss, 0.02000, was seen at image 300.") == 4  # the other trainings
    curve(Path("curves/generator"), "val/loss", [])
    assert shown().count("lowest validation loss") == 4


def test_values_that_are_not_finite_are_counted(made: Path) -> None:
    evaluated()
    curve(Path("curves/generator"), f"val/{BANDS[0]}", [(100, "nan"), (200, 1.0)])
    curve(Path("curves/generator"), "eval/fd", [(100, "inf"), (200, 1.0)])
    assert "2 values left out: not finite." in shown()


def test_a_teacher_that_was_not_trained_is_not_told_of(made: Path) -> None:
    assert "Teacher" in shown()
    for table in Path("curves/teacher").rglob("*.tsv"):
        table.unlink()
    assert "Teacher" not in shown() and "Tokenizer" in shown()


def luminance(colour: str) -> float:
    """Return the relative luminance of #rrggbb in sRGB (IEC 61966-2-1)."""
    linear = []
    for at in (1, 3, 5):
        value = int(colour[at : at + 2], 16) / 255
        linear.append(value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4)
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    """Return the contrast of WCAG 2, from 1 to 21."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("dark", [False, True])
def test_bands_differ_without_their_hues(dark: bool) -> None:
    """By lightness, which every eye sees, each from the paper and from its neighbours; and by their dashes."""
    light_part, dark_part = CSS.split("@media (prefers-color-scheme: dark)")[:2]
    colours = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", dark_part if dark else light_part))
    bands = [colours[f"band-{number}"] for number in (1, 2, 3, 4)]
    assert min(contrast(band, colours["paper"]) for band in bands) >= 3  # WCAG 2.2, 1.4.11: graphical objects
    steps = [math.log(luminance(a) + 0.05) - math.log(luminance(b) + 0.05) for a, b in pairwise(bands)]
    assert min(steps) > math.log(1.5)
    dashes = re.findall(r"\.band-\d \.line \{ stroke: var\(--band-\d\);(?: stroke-dasharray: ([\d ]+);)?", CSS)
    assert len(dashes) == len(set(dashes)) == 4
