"""The page shows what was found near the training images, beside what held-out images get, and the pairs."""

from pathlib import Path
from typing import Any

import numpy as np

from darkroom.artifacts.manifest import manifest_hash, write_manifest
from darkroom.data.grid import contact_sheet, image_grid, save_png
from darkroom.report.inputs import read_inputs
from darkroom.report.page import render
from report.making import CLASSES, Page

FLOOR = {f"copies_{space}": 0.0 for space in ("pixels", "moved", "features")} | {
    f"ct_{space}": 0.5 for space in ("pixels", "moved", "features")
}
HONEST = {**FLOOR, "fd_gap": 0.25, "fd_gap_se": 0.5, "kid_gap": 0.5, "kid_gap_se": 0.125, "times_seen": 53.25}
COPIER = {
    **HONEST,
    "copies_pixels": 0.9,
    "copies_features": 0.015,
    "ct_pixels": -20.0,
    "ct_moved": 12.0,
    "kid_gap": -0.5,
}


def found(name: str, scores: dict[str, float], **changes: Any) -> None:
    folder = Path("samples/nearest") / name
    for space in ("pixels", "moved", "features"):
        images = np.random.default_rng(0).integers(0, 256, (32, 3, 8, 8), dtype=np.uint8)
        save_png(folder / f"{space}.png", image_grid(images, columns=8, scale=12))
    facts = {
        "samples": manifest_hash(Path("samples") / name),
        "images": 400,
        "held_out": {"split": "test", "images": 260},
        "train": 1440,
        "scores": scores,
        "floor": FLOOR,
        "nearer": {"pixels": 0.99, "moved": 0.25, "features": 0.5},
    }
    write_manifest(folder, "nearest", **facts | changes, files={})


def cells(html: str) -> dict[str, str]:
    """Return the rows of the table by their numbers, as text."""
    rows = html.split("data-copies=")[1:]
    return {row.split('"')[1]: Page(f"<table><tr {row.split('</tr>')[0]}</tr></table>").text for row in rows}


def test_numbers_stand_beside_those_of_held_out_images(made: Path) -> None:
    found("generator", COPIER)
    html = render("title", read_inputs())
    page, rows = Page(html), cells(html)
    assert page.faults == [] and "n = 400" in page.text and "n = 260" in page.text
    assert "90.0% (86.7 to 92.6)" in rows["copies_pixels"] and "0.0% (0.0 to 1.5)" in rows["copies_pixels"]
    assert "far nearer than all others" in rows["copies_pixels"] and "mirror" not in rows["ct_pixels"]
    assert "\N{MINUS SIGN}20.0" in rows["ct_pixels"] and "0.5" in rows["ct_pixels"]
    assert "\N{MINUS SIGN}0.50 ± 0.12" in rows["kid_gap"] and "53.25" in rows["times_seen"]
    pictures = [tag for name, tag in page.tags if name == "img" and "nearest to them" in str(tag.get("alt"))]
    assert len(pictures) == 3 and all(int(str(tag["width"])) == 8 * 98 + 2 for tag in pictures)


def test_each_set_of_images_has_its_table(told: Path) -> None:
    assert 'id="memorisation"' not in render("title", read_inputs())
    found("generator", HONEST)
    found("text", {name: value for name, value in HONEST.items() if "gap" not in name and name != "times_seen"})
    html = render("title", read_inputs())
    section = html.split('id="memorisation"')[1].split("</section>")[0]
    assert "<h3>Generated images</h3>" in section and "<h3>Images of captions</h3>" in section
    assert section.count('data-copies="fd_gap"') == section.count('data-copies="times_seen"') == 1


def beside(columns: list[str], neighbours: int, **changes: Any) -> None:
    """Write real images beside generated ones."""
    folder = Path("samples/nearest/generator")
    count = len(columns) or 10
    images = np.random.default_rng(0).integers(0, 256, (5 * count, 3, 8, 8), dtype=np.uint8)
    save_png(folder / "real.png", contact_sheet(images, count))
    if neighbours:
        save_png(folder / "neighbours.png", contact_sheet(images[: 3 * neighbours * count], count))
    facts = {"samples": manifest_hash(Path("samples/generator")), "images": 0, "columns": columns}
    write_manifest(folder, "nearest", **facts | {"neighbours": neighbours} | changes, files={"real.png": ""})


def test_real_images_and_neighbours_stand_beside_generated_ones(made: Path) -> None:
    without = Page(render("title", read_inputs()))
    assert "drawn at random from the train split" not in without.text
    beside(CLASSES, 1)
    html = render("title", read_inputs())
    page = Page(html)
    assert page.faults == [] and "real, drawn at random from the train split" in page.text
    assert html.count('<div class="columns"') == 3  # of the generated, the real, and the neighbours
    assert "generatednearest in featuresnearest in pixels" in page.text
    pictures = [tag for name, tag in page.tags if name == "img"]
    assert [int(str(tag["width"])) for tag in pictures if "eal " in str(tag["alt"])][:2] == 2 * [3 * 98 + 2]


def test_real_images_of_captions_stand_in_no_column(made: Path) -> None:
    beside(CLASSES, 1, originals="test")
    html = render("title", read_inputs())
    page = Page(html)
    assert page.faults == [] and "real images of these captions, from the test split" in page.text
    assert html.count('<div class="columns"') == 2  # of the generated and the neighbours


def test_real_images_stand_there_where_no_copies_were_looked_for(made: Path) -> None:
    beside([], 0)
    page = Page(render("title", read_inputs()))
    assert "real, drawn at random" in page.text and "nearest in features" not in page.text
