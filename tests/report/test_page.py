"""The page says what the artifacts say, needs nothing else, and is the same each time."""

import json
import re
from contextlib import chdir
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from darkroom.artifacts.manifest import manifest_hash, open_artifact, write_manifest
from darkroom.metrics.codes import code_scores
from darkroom.metrics.score import wilson
from darkroom.models.decoder.settings import Names
from darkroom.params.parts import Part
from darkroom.report.headline import headlines
from darkroom.report.inputs import read_inputs
from darkroom.report.page import render
from darkroom.report.settings import Params, Report
from darkroom.stages.report import run
from data.frames import LEAKING, TWINS
from helpers import run as run_section
from report.making import (
    CLASSES,
    CLIP,
    DIT,
    FLOOR,
    HALVES,
    INCEPTION,
    OWN,
    REAL,
    TOKENIZER,
    Page,
    change,
    curve,
    grid,
    part,
    project,
    without_clip,
    without_generator,
)

TITLE = "Digits <script>alert(1)</script> & more"
DIGITS = {"first": Part(source="digits", stop=900), "second": Part(source="digits", start=900)}


def page() -> Page:
    return Page(render(TITLE, read_inputs()))


@pytest.fixture(scope="module")
def html(template: Path) -> str:
    """The page of the project as it is."""
    with chdir(template):
        return render(TITLE, read_inputs())


@pytest.fixture(scope="module")
def whole(html: str) -> Page:
    """The same, read; tests leave it as it is."""
    return Page(html)


def read_back(shown: str) -> tuple[float, int, float]:
    """Return the number that a text shows, its decimals, and what divides it to be a share."""
    text = shown.replace("\N{MINUS SIGN}", "-").replace(",", "").strip()
    divisor = 100.0 if text.endswith("%") else 1.0
    text = text.removesuffix("%")
    return float(text), len(text.partition(".")[2]), divisor


def settings(report: Report, **parts: Part) -> Params:
    return Params(run=run_section(), report=report, train_decoder=Names(unets={}), parts=parts or DIGITS)


def test_the_heading_names_the_data() -> None:
    pictures = Part(source="folder", path="data/pictures")
    assert settings(Report(title="As said")).heading == "As said"
    assert settings(Report()).heading == "Darkroom on digits"
    assert settings(Report(), holidays=pictures, more=Part(source="digits")).heading == "Darkroom on holidays, digits"


def test_two_writes_are_equal_and_described(made: Path) -> None:
    params = settings(Report(title=TITLE))
    run(params)
    first = {path.name: path.read_bytes() for path in Path("reports").iterdir()}
    run(params)
    assert {path.name: path.read_bytes() for path in Path("reports").iterdir()} == first
    assert set(first) == {"index.html", "manifest.json"}
    assert set(open_artifact(Path("reports"), "report")["files"]) == {"index.html"}


def test_every_number_is_its_rounded_value(whole: Page) -> None:
    shown = whole.data
    assert len(shown) > 20
    for value, text in shown:
        number, decimals, divisor = read_back(text)
        assert number == pytest.approx(value * divisor, abs=0.5000001 * 10**-decimals), text
        assert decimals or abs(value) >= 10 or not value  # no digit that matters is rounded away


@pytest.mark.parametrize("inception", [False, True])
def test_rows_hold_the_scores_their_errors_and_the_floor(
    inception: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    project(inception=inception)
    rows = {name: [value for value, _ in cells] for name, cells in page().rows.items()}
    expected = {name: [DIT[name], DIT["fd_se"], FLOOR[name], FLOOR["fd_se"], HALVES[name], HALVES["fd_se"]]
                for name in ("fd", "fd_debiased")}  # fmt: skip
    expected["kid"] = [of[key] for of in (DIT, FLOOR, HALVES) for key in ("kid", "kid_se")]
    if inception:
        for name in ("fid", "fid_debiased"):
            base = name.replace("fid", "fd")
            floors = [of[key] for of in (FLOOR, HALVES) for key in (base, "fd_se")]
            expected[name] = [INCEPTION[name], INCEPTION["fid_se"], *floors]
        floors = [of[key] for of in (FLOOR, HALVES) for key in ("kid", "kid_se")]
        expected["inception_kid"] = [INCEPTION["inception_kid"], INCEPTION["inception_kid_se"], *floors]
    expected["label_accuracy"] = [DIT["label_accuracy"], REAL["held_out"], REAL["held_out_se"]]
    expected |= {name: [value] for name, value in TOKENIZER.items()}
    expected |= {name: [value, CLIP[f"{name}_se"]] for name, value in CLIP.items() if not name.endswith("_se")}
    assert rows == expected


def test_the_tokenizers_own_images_stand_in_the_same_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    project(generating=True)
    found = page()
    assert [value for value, _ in found.rows["fd"]] == [
        *(DIT["fd"], DIT["fd_se"], FLOOR["fd"], FLOOR["fd_se"], HALVES["fd"], HALVES["fd_se"]),
        *(OWN["fd"], OWN["fd_se"], FLOOR["fd"], FLOOR["fd_se"], HALVES["fd"], HALVES["fd_se"]),
    ]
    assert [value for value, _ in found.rows["confident"]] == [OWN["confident"], REAL["held_out_confident"]]
    assert "The tokenizer's own images" in found.text and "n = 20" in found.text and "min_p 0.25" in found.text


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"condition": "tokens"}, "Each made of the caption below it"),
        ({"condition": "none"}, "Made of nothing but noise"),
        ({"counts": {CLASSES[0]: 40}}, f"All of the class {CLASSES[0]}:"),
    ],
)
def test_samples_of_no_class_and_of_one_stand_in_no_columns(made: Path, changes: dict[str, Any], says: str) -> None:
    assert "One class a column" in page().text
    change("samples/generator/manifest.json", **changes)
    samples = json.loads(Path("samples/generator/manifest.json").read_text())
    facts = {name: value for name, value in samples.items() if name not in ("kind", "format", "seal")}
    write_manifest(Path("samples/generator"), "samples", **facts)
    change("cards/generator.json", samples=manifest_hash(Path("samples/generator")))
    found = page()
    assert says in found.text and "One class a column" not in found.text and "solver euler" in found.text


def test_held_out_images_are_the_reference_of_the_headline_where_they_are_enough(made: Path) -> None:
    name = "Fréchet distance, without its bias"
    (before,) = [line for line in headlines(read_inputs()) if line.title == name]
    assert (
        before.number.value == DIT["fd_debiased"]
        and "the real ones of the train split; less is better" in before.sentence
    )
    assert "too small to be the reference" in before.sentence and "260 images; 640 are needed" in before.sentence
    inputs = read_inputs()
    facts = inputs.reference.extractors["in_domain"]
    many = facts.model_copy(update={"held_out": facts.held_out | {"n": 5000}})
    reference = inputs.reference.model_copy(update={"extractors": {"in_domain": many}})
    (large,) = [line for line in headlines(replace(inputs, reference=reference)) if line.title == name]
    assert "too small" not in large.sentence
    unseen = {"fd_held_out": 9.5, "fd_held_out_debiased": 9.25, "fd_held_out_se": 0.5}
    change("metrics/generator.json", **unseen)
    card = json.loads(Path("cards/generator.json").read_text())
    trained = {"in_domain": {"n": 40, "fd": 8.5, "fd_debiased": 8.25, "fd_se": 0.5}}
    change(
        "cards/generator.json",
        formulas=card["formulas"] | dict.fromkeys(unseen, "mean"),
        baselines=card["baselines"] | {"train": trained},
    )
    (line,) = [line for line in headlines(read_inputs()) if line.title == name]
    assert line.number.value == 9.25 and "the real ones of the test split, which no training saw" in line.sentence
    assert "40 real images of the train split, of the same classes, score 8.25 ± 0.50" in line.sentence
    assert "too small" not in line.sentence
    assert [value for value, _ in page().rows["fd_held_out_debiased"]] == [9.25, 0.5, 8.25, 0.5]


def headings(found: Page) -> list[str]:
    """Return the titles of the headline numbers and the headings of the trainings, as the text has them."""
    return [
        line
        for line in found.text.splitlines()
        if line in {"Label accuracy", "PSNR (dB)", "Generator", "Tokenizer", "Extractor", "CLIP", "Generated images"}
        or line.startswith("Fréchet distance, without its bias")
    ]


def test_where_there_is_one_class_no_headline_is_of_labels(made: Path) -> None:
    inputs = read_inputs()
    of_one = replace(inputs, catalog=inputs.catalog.model_copy(update={"classes": inputs.catalog.classes[:1]}))
    titles = {line.title for line in headlines(inputs)} - {line.title for line in headlines(of_one)}
    assert "Label accuracy" in titles and all(title.startswith("Label accuracy") for title in titles)


def test_a_page_without_a_generator_has_the_tokenizer_alone(made: Path) -> None:
    assert {"Label accuracy", "Generator", "CLIP"} <= set(headings(page()))
    without_generator()
    without_clip()
    html = render(TITLE, read_inputs())
    found = Page(html)
    assert found.faults == [] and len([tag for tag, _ in found.tags if tag == "img"]) == 2
    assert "No image was generated: train_generator.kind is none." in found.text
    shown = headings(found)
    assert {"PSNR (dB)", "Tokenizer", "Extractor"} <= set(shown)
    assert not {"Label accuracy", "Generator", "CLIP", "Fréchet distance, without its bias"} & set(shown)
    assert {name: [value for value, _ in cells] for name, cells in found.rows.items()} == {
        name: [value] for name, value in TOKENIZER.items()
    }
    # Nothing generated has no distance, so there is no noise floor to stand beside it.
    assert "unseen real images" not in html and "noise floor" not in html and 'colspan="2"' in html


def test_without_a_generator_the_tokenizers_own_images_are_the_headline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    project(generating=True)
    assert "of the tokenizer's own images" not in page().text
    without_generator()
    html = render(TITLE, read_inputs())
    found = Page(html)
    assert found.faults == []
    assert "Fréchet distance, without its bias, of the tokenizer's own images" in headings(found)
    fd = found.rows["fd"]
    assert [value for value, _ in fd] == [
        *(OWN["fd"], OWN["fd_se"], FLOOR["fd"], FLOOR["fd_se"], HALVES["fd"], HALVES["fd_se"])
    ]
    assert "noise floor" in html


def test_only_inceptions_distance_is_called_fid(whole: Page) -> None:
    assert not re.search(r"\bFID\b", whole.text)


def test_notes_of_a_card_stand_below_the_table(made: Path) -> None:
    change("cards/generator.json", notes=["too few samples & more"])
    assert "Note: too few samples & more." in page().text


def test_counts_stand_above_the_scores(whole: Page) -> None:
    text = whole.text
    assert "n = 40" in text and "n = 260" in text and "n = 38" in text and "n = 719 and 720" in text


def test_headline_compares_with_unseen_real_images(whole: Page) -> None:
    assert "38 real images of the test split, of the same classes, score 1.4 ± 1.2." in whole.text


def test_scores_of_too_few_images_say_so_in_place_of_an_error(made: Path) -> None:
    scores, card = (json.loads(Path(f"{folder}/generator.json").read_text()) for folder in ("metrics", "cards"))
    del scores["fd_se"], card["formulas"]["fd_se"]
    Path("metrics/generator.json").write_text(json.dumps(scores))
    Path("cards/generator.json").write_text(json.dumps(card))
    found = page()
    assert f"too few images ({scores['n']:,})" in found.text and DIT["fd_se"] not in [v for v, _ in found.rows["fd"]]


def test_a_floor_of_too_few_images_leaves_the_distance_alone(made: Path) -> None:
    change("cards/generator.json", baselines={"held_out": {"in_domain": {}}})
    found = page()
    assert [value for value, _ in found.rows["fd"]] == [DIT["fd"], DIT["fd_se"], HALVES["fd"], HALVES["fd_se"]]
    assert "too few" in found.text and "standard errors, so" not in found.text
    assert [value for value, _ in found.rows["label_accuracy"]] == [DIT["label_accuracy"]]
    assert "Of held-out real images" not in found.text and "a constant answer gets 0.3438" not in found.text


def test_a_label_accuracy_stands_beside_what_real_images_and_a_constant_answer_get(whole: Page) -> None:
    text = whole.text
    assert "Of held-out real images it recognises 81.2%; a constant answer would be right for 34.4%." in text
    assert "a constant answer gets 0.3438" in text
    assert "10 captions that differ, a constant answer gets 0.2188" in text


def test_the_label_classifier_is_shown_by_class(made: Path) -> None:
    found = page()
    named = {of["data-recognised"] for tag, of in found.tags if "data-recognised" in of}
    assert named == set(CLASSES[:2])
    assert "Of 3 images of the test split it recognises 75.0%; the mean over classes is 62.5%" in found.text
    assert "fewer than 80.0%" in found.text and f"Of {CLASSES[1]} it recognises none." in found.text
    change("data/reference/manifest.json", evaluator=None)
    change("cards/generator.json", reference={"id": manifest_hash(Path("data/reference")), "split": "train"})
    assert "label classifier" not in page().text


def test_wilson_interval_ends_where_the_share_is_just_not_refused() -> None:
    for hits, n in ((0, 20), (975, 1000), (20, 20)):
        low, high = wilson(hits / n, n)
        for end in (low, high):
            if 1e-9 < end < 1 - 1e-9:  # |p - end| = 1.96 standard errors at `end`
                assert abs(hits / n - end) == pytest.approx(1.96 * (end * (1 - end) / n) ** 0.5)
        assert 0 <= low <= hits / n <= high + 1e-12 <= 1 + 1e-12  # a rounding error below 1


def test_page_refers_to_nothing_outside(template: Path, html: str, whole: Page) -> None:
    for tag, attributes in whole.tags:
        assert tag not in {"script", "link", "iframe", "object", "embed", "base"}
        for name in ("src", "href", "xlink:href", "srcset", "action", "poster", "data"):
            assert (attributes.get(name) or "data:image/png;base64,").startswith("data:image/png;base64,")
    assert "@import" not in html and "url(" not in html and "@font-face" not in html
    without = re.sub(r"base64,[A-Za-z0-9+/=]+", "", html).replace("http://www.w3.org/2000/svg", "")
    assert "http" not in without and str(template) not in without
    without = re.sub(r" to (models/extractor|data/reference)\b", "", without)  # values of keys, in advice
    assert not re.search(r"\b(data|metrics|cards|samples|curves|models|reports|src|home|tmp)/", without)


def test_tags_are_balanced_and_names_are_escaped(whole: Page) -> None:
    assert whole.faults == []
    for name in (TITLE, *CLASSES, "formula of psnr <&>"):
        assert name in whole.text
    assert not {"script", "b"} & {tag for tag, _ in whole.tags}


def test_pictures_are_inside(whole: Page) -> None:
    images = [attributes for tag, attributes in whole.tags if tag == "img"]
    assert len(images) == 3 and all(image["alt"] for image in images)
    assert "dag" in {attributes.get("class") for _, attributes in whole.tags}


def test_grids_are_shown_at_their_own_size_in_whole_pixels(html: str) -> None:
    """A style that shrinks a picture would mix its pixels; a narrow page scrolls instead."""
    assert html.count('<div class="wide">\n<div class="sheet') == len(re.findall("<img ", html)) == 3
    assert re.search(r"\.sheet img \{ max-width: none; image-rendering: pixelated; \}", html)


def test_each_column_stands_below_the_name_of_its_class(template: Path, html: str) -> None:
    names = re.search(r'<div class="columns" style="(.*?)">(.*?)</div>', html, re.DOTALL)
    assert names is not None
    with Image.open(template / "samples/generator/grid.png") as picture:
        assert names[1] == f"grid-template-columns:repeat(3,{(picture.width - 2) / 3}px)"
    titles = [str(attributes["title"]) for tag, attributes in Page(names[2]).tags if tag == "span"]
    assert titles == CLASSES  # also where they are cut off


def test_rows_of_the_reconstructions_are_named(whole: Page) -> None:
    assert "originaldecodederror" in whole.text and "below each of them" in whole.text


def test_grid_that_is_not_full_has_no_row_names(made: Path) -> None:
    grid(Path("samples/reconstructions/grid.png"), 12, 16)
    change("samples/reconstructions/manifest.json", images=4)
    found = page()
    assert "originaldecoded" not in found.text and "each run of them followed by" in found.text and found.faults == []


def test_stages_that_had_nothing_to_do_are_pale(made: Path) -> None:
    def pale() -> set[str]:
        rules = re.findall(r"([^{}\n]*data-stage[^{}\n]*) { opacity", render(TITLE, read_inputs()))
        return {stage for rule in rules for stage in re.findall(r'data-stage="(\w+)"', rule)}

    before = pale()
    without_clip()
    assert {
        "sample_decoder",
        "sample_text",
        "score_text",
        "score_tokenizer_samples",
    } <= before and "train_generator" not in before
    assert pale() - before == {"train_clip"}


def test_codes_have_their_scores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    train, scored = np.array([10, 0, 70, 20]), np.array([0, 0, 5, 5])
    scores = {**TOKENIZER, "rfid": 3.5, "ms_ssim": 0.97, "lpips": 0.25, **code_scores(train, scored, 16, 64)}
    project(tokenizer=scores, codes=(train.tolist(), scored.tolist()))
    found = page()
    assert found.faults == []
    assert {name for name in found.rows if name in scores} == set(scores)
    assert found.rows["codebook_usage"][0][0] == 0.75 and found.rows["dead_codes_scored"][0][0] == 2
    for text in ("Codes of the train split", "Codes of the test split", "4 in the codebook", "LPIPS", "MS-SSIM"):
        assert text in found.text
    assert "encoded into codes" in found.text


def test_a_tokenizer_without_codes_has_none_on_the_page(whole: Page) -> None:
    assert "codebook" not in whole.text


def test_samples_shown_are_counted(made: Path) -> None:
    assert "their first 30 images" in page().text
    grid(Path("samples/generator/grid.png"), 5, 3)
    change("samples/generator/manifest.json", images=5, counts=dict(zip(CLASSES, (2, 2, 1), strict=True)))
    change("cards/generator.json", n_fake=5, samples=manifest_hash(Path("samples/generator")))
    change("metrics/generator.json", n=5)
    assert "their first 5 images" in page().text


def test_a_class_without_images_has_no_column(made: Path) -> None:
    grid(Path("samples/generator/grid.png"), 5, 2)
    change("samples/generator/manifest.json", images=5, counts=dict(zip(CLASSES, (0, 3, 2), strict=True)))
    change("cards/generator.json", n_fake=5, samples=manifest_hash(Path("samples/generator")))
    change("metrics/generator.json", n=5)
    text = page().text
    assert "their first 5 images" in text and "the first 2 of 3 classes" in text


def test_data_card_counts(template: Path, whole: Page) -> None:
    text, catalog = whole.text, json.loads((template / "data/catalog/manifest.json").read_text())
    for split, images in catalog["images"].items():
        assert f"{images:,} {split}" in text
    assert "7 images repeat an earlier one" in text and "5 one in another part, 2 one in another split" in text
    assert "8 × 8 pixels, RGB, stored as png" in text and "1,200 images have one" in text
    assert text.count("1,234") == len(CLASSES)
    assert "first90091.23 MB8 pixels0" in "".join(text.split("\n")) and "second897" in "".join(text.split("\n"))


def test_what_looks_wrong_with_classes_stands_beside_their_number(made: Path) -> None:
    catalog = json.loads(Path("data/catalog/manifest.json").read_text())
    counts = {split: {**of, "Three": 4 * (split == "test")} for split, of in catalog["counts"].items()}
    found = data_changed(counts=counts)
    assert "without a training image" in found.text


def test_near_twins_stand_below_the_heading(made: Path) -> None:
    assert "near twin" not in page().text
    text = data_changed(leakage=LEAKING).text
    assert text.index(TWINS.replace("`", "")) < text.index("Generated images")
    assert "81.0% of 200 images of the test split are as near to a training image as 5%" in text


def data_changed(**changes: Any) -> Page:
    """Return the page of a catalog with changes, which all that was made from it belongs to."""
    change("data/catalog/manifest.json", **changes)
    for folder in ("data/reference", "samples/catalog"):
        change(f"{folder}/manifest.json", catalog=manifest_hash(Path("data/catalog")))
    for name, folder in (("generator", "data/reference"), ("tokenizer", "data/catalog"), ("clip", "data/catalog")):
        change(f"cards/{name}.json", reference={"id": manifest_hash(Path(folder)), "split": "test"})
    return page()


def test_damage_is_a_table_by_part_and_reason(made: Path) -> None:
    assert "All samples of the sources are fine" in page().text
    wrong = part("mess", 1000, (9, 300, 4000), quarantine={"empty": 2, "not_an_image": 1300}, keep={"<i>": 1})
    found = data_changed(parts=[part("first", 900), wrong])
    rows = [str(attributes["data-damage"]) for tag, attributes in found.tags if attributes.get("data-damage")]
    assert rows == ["mess quarantine not_an_image", "mess quarantine empty", "mess keep <i>"]
    assert "messleft outnot an image1,300" in found.text and "messkept as they are<i>1" in found.text
    assert "9 to 4,000 pixels, median 300" in found.text
    assert "are fine" not in found.text and found.faults == []


def test_what_was_passed_over_is_a_list(made: Path) -> None:
    assert "Passed over" not in page().text
    aside = {"aside": {"hidden": 1201}, "aside_images": 700, "ignored": {".pdf": 3, "": 1}, "loops": 2}
    found = data_changed(parts=[part("first", 900), {**part("mess", 1000), "passed_over": aside}])
    assert "mess: hidden, or in folders of the system: hidden 1,201; with an image's ending 700" in found.text
    assert "mess: other endings: .pdf 3, none 1" in found.text
    assert "mess: links to a folder that contains them: 2" in found.text and found.faults == []


def test_formats_that_differ(made: Path) -> None:
    assert (
        "RGB, stored in several formats" in data_changed(image={"size": 8, "channels": "RGB", "format": "mixed"}).text
    )


def test_curves_with_few_points(made: Path) -> None:
    curve(Path("curves/generator"), "train/loss", [(100, 2.0)])
    curve(Path("curves/generator"), "val/loss", [])
    curve(Path("curves/extractor"), "train/loss", [(100, "nan"), (200, 1.0), (300, 0.5)])
    for name in ("train/loss", "val/loss", "learning_rate"):
        (Path("curves/tokenizer/plots/metrics") / f"{name}.tsv").unlink()
    found = page()
    assert found.faults == []
    assert "No loss was logged." in found.text
    assert "Loss at 1 point of training and 0 points of validation" in found.text
    assert "Loss at 2 points of training" in found.text and "1 value left out: not finite." in found.text
