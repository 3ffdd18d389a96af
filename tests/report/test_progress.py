"""The page shows the same images at points of a training, where the training drew some."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from darkroom.data.grid import contact_sheet, save_png
from darkroom.errors import DarkroomError
from darkroom.report.inputs import read_inputs
from darkroom.report.page import render
from report.making import CLASSES, UNETS, Page


def write_evolution(name: str, count: int, **facts: Any) -> None:
    """Write a sample evolution of `count` images in a row, at 1,000 and 2,500 images."""
    facts = {"images": [1000, 2500], "originals": False, "by_class": False} | facts
    rows = len(facts["images"]) + facts["originals"]
    images = np.random.default_rng(0).integers(0, 256, (rows * count, 3, 8, 8), dtype=np.uint8)
    folder = Path("curves") / name
    save_png(folder / "sample_evolution.png", contact_sheet(images, count))
    (folder / "sample_evolution.json").write_text(json.dumps(facts))


def section(html: str, name: str) -> str:
    return html.split(f'<section id="{name}">')[1].split("</section>")[0]


def test_the_rows_are_named_by_the_images_seen(made: Path) -> None:
    assert "As the training" not in render("title", read_inputs())
    write_evolution("generator", 2, by_class=True)
    write_evolution("tokenizer", 3, originals=True)
    html = render("title", read_inputs())
    assert Page(html).faults == []
    generated = Page(section(html, "samples"))
    assert "1,0002,500" in generated.text and "from the same noise" in generated.text
    titles = [str(attributes["title"]) for tag, attributes in generated.tags if tag == "span" and "title" in attributes]
    assert titles[-2:] == CLASSES[:2]
    decoded = Page(section(html, "reconstructions"))
    assert "original1,0002,500" in decoded.text and "below the real ones" in decoded.text


def test_columns_of_texts_have_them_above(made: Path) -> None:
    write_evolution("generator", 2, captions=["a red <ring>", "two dogs"])
    page = Page(section(render("title", read_inputs()), "samples"))
    titles = [str(attributes["title"]) for tag, attributes in page.tags if tag == "span" and "title" in attributes]
    assert titles[-2:] == ["a red <ring>", "two dogs"] and "a red <ring>\ntwo dogs" in page.text


def test_each_u_net_has_its_own(told: Path) -> None:
    for unet in UNETS:
        write_evolution(f"decoder/{unet}", 4, originals=True)
    text = Page(render("title", read_inputs(UNETS))).text
    assert all(text.count(f"As the training of {unet} went on") == 1 for unet in UNETS)


@pytest.mark.parametrize("facts", ["{}", "no"])
def test_a_damaged_one_is_named(made: Path, facts: str) -> None:
    write_evolution("generator", 2)
    Path("curves/generator/sample_evolution.json").write_text(facts)
    with pytest.raises(DarkroomError, match=r"curves/generator/sample_evolution\.json"):
        read_inputs()
