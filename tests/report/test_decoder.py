"""The page of a decoder: what it made and scores, what bounds the scores, and nothing where nothing was made."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from darkroom.artifacts.manifest import manifest_hash
from darkroom.errors import DarkroomError
from darkroom.report.curves import read_training
from darkroom.report.decoder import pair_rows, sampling
from darkroom.report.headline import headlines
from darkroom.report.inputs import read_inputs
from darkroom.report.page import render
from darkroom.report.trainings import drawn
from report.making import DECODER, DIT, FLOOR, HALVES, PRIOR, REAL, TEXT, UNETS, Page, change, curve


def page() -> Page:
    found = Page(render("Shapes", read_inputs(UNETS)))
    assert found.faults == []
    return found


def values(found: Page, name: str) -> list[float]:
    return [value for value, _ in found.rows[name]]


def test_each_generator_has_its_scores_and_the_noise_floor(told: Path) -> None:
    floors = [FLOOR["fd_debiased"], FLOOR["fd_se"], HALVES["fd_debiased"], HALVES["fd_se"]]
    expected = [value for of in (DIT, DECODER, TEXT) for value in (of["fd_debiased"], of["fd_se"], *floors)]
    assert values(page(), "fd_debiased") == expected
    assert values(page(), "label_accuracy") == [
        value for of in (DIT, DECODER, TEXT) for value in (of["label_accuracy"], REAL["held_out"], REAL["held_out_se"])
    ]


def test_pairs_stand_beside_what_bounds_them(told: Path) -> None:
    """These images, their originals, unseen renders, chance; a standard error behind each that has one."""
    found = page()
    assert values(found, "psnr")[1:3] == [14.25, 0.125]  # the first is that of the reconstructions
    assert values(found, "clip_image") == 2 * [0.875, 0.0125, 0.375]
    assert values(found, "clip_text") == 2 * [0.5, 0.0125, 0.625, 0.015625, 0.25]
    assert values(found, "colour_and_form") == [
        *(0.8125, 0.025, 0.96875, 0.9921875),
        *(0.625, 0.025, 0.96875, 0.9921875),
    ]
    assert "clip_text_real" not in found.rows and "Images of captions: few samples." in found.text


def test_columns_of_which_no_score_has_a_number_are_left_out(told: Path) -> None:
    assert "unseen renders" in page().text
    for name in ("decoder", "text"):
        change(f"cards/{name}.json", scene_reader=None)
    found = page()
    assert "unseen renders" not in found.text and "their originals" in found.text
    assert values(found, "colour") == 2 * [0.9375, 0.0125]


def test_pictures_captions_and_samplers_are_shown(told: Path) -> None:
    found = page()
    images = [attributes for tag, attributes in found.tags if tag == "img"]
    assert len(images) == 3 + 4 + 1
    for says in ("Images of embeddings", "Images of captions", "Variations.", "Interpolations.", "In-painting."):
        assert says in found.text
    assert "Sampled with solver dpm, steps 16, guidance 2.0; up: steps 8." in found.text
    assert "up: steps 8; the prior: solver ddim, steps 20." in found.text


def test_further_pictures_are_those_that_the_manifest_names(told: Path) -> None:
    change("samples/decoder/manifest.json", files={"grid.png": "", "inpainted.png": ""})
    change("cards/decoder.json", samples=manifest_hash(Path("samples/decoder")))
    text = page().text
    assert "In-painting." in text and "Variations." not in text


def test_headlines_tell_of_colour_and_form_or_else_of_classes(told: Path) -> None:
    assert {line.title: line.number.text for line in headlines(read_inputs()) if " of " in line.title} == {
        "Colour and form, of embeddings": "81.2%",
        "Colour and form, of captions": "62.5%",
    }
    rest = dict.fromkeys(key for key in DECODER if key != "n" and not key.startswith("colour_and"))
    for name in ("decoder", "text"):
        change(f"metrics/{name}.json", colour_and_form=None, colour_and_form_se=None)
        change(f"cards/{name}.json", formulas=dict.fromkeys(rest, ""))
    titles = [line.title for line in headlines(read_inputs())]
    assert "Label accuracy, of embeddings" in titles and "Label accuracy, of captions" in titles
    inputs = read_inputs()
    assert inputs.decoder is not None
    enlarged = replace(inputs.decoder, samples=inputs.decoder.samples.model_copy(update={"condition": "none"}))
    titles = [line.title for line in headlines(replace(inputs, decoder=enlarged))]
    assert "Label accuracy, of smaller images" in titles and "Label accuracy, of embeddings" not in titles


def test_the_prior_is_compared_with_handing_on_the_text_and_with_nothing(told: Path) -> None:
    found = page()
    assert values(found, "cosine") == [PRIOR["cosine"], PRIOR["cosine_se"]]
    assert values(found, "cosine_text") == [PRIOR["cosine_text"]]
    assert values(found, "cosine_other") == [PRIOR["cosine_other"]]


def test_u_nets_prior_and_scene_reader_have_their_curves(told: Path) -> None:
    for title in ("Decoder: U-Net base", "Decoder: U-Net up", "Prior", "Scene reader"):
        assert title in page().text
    assert "U-Net up" not in Page(render("Shapes", read_inputs(("base",)))).text
    for name, last in (("cosine", 0.9), ("cosine_text", 0.5), ("cosine_other", 0.25)):
        curve(Path("curves/prior"), f"eval/{name}", [(100, 0.0), (200, last)])
    (chart,) = drawn(read_training(Path("curves/prior"))).scores
    assert all(f">{name}<" in chart for name in ("made", "of the text", "of another image"))


def test_where_nothing_was_made_nothing_is_told(made: Path) -> None:
    inputs = read_inputs(UNETS)
    assert inputs.decoder is None and inputs.text is None and inputs.prior is None
    text = page().text
    for word in ("embeddings", "U-Net", "Prior", "Scene reader", "Agreement with the condition"):
        assert word not in text


def test_a_missing_u_net_is_named(told: Path) -> None:
    with pytest.raises(DarkroomError, match="curves/decoder/third is missing"):
        read_inputs((*UNETS, "third"))


def test_a_decoder_told_nothing_has_no_chance_to_compare_with(told: Path) -> None:
    change("cards/decoder.json", clip_unrelated=None)
    inputs = read_inputs()
    assert inputs.decoder is not None
    assert all(row.beside[2] is None for row in pair_rows(inputs.decoder.scored))
    assert sampling({}) == ""


@pytest.mark.parametrize(
    ("breakage", "names"),
    [
        (lambda: Path("samples/decoder/variations.png").unlink(), ["samples/decoder/variations.png is missing"]),
        (lambda: Path("samples/text/grid.png").write_bytes(b"no"), ["samples/text/grid.png"]),
        (lambda: _prior(split=None), ["models/prior"]),
    ],
)
def test_what_does_not_fit_is_named(told: Path, breakage: Callable[[], Any], names: list[str]) -> None:
    breakage()
    with pytest.raises(DarkroomError) as caught:
        read_inputs()
    assert all(name in str(caught.value) for name in names), caught.value


def _prior(**changes: Any) -> None:
    """Change the prior's scores, and let the images of captions know of it."""
    scores = {"split": "test", "images": 20, **PRIOR, **changes}
    change("models/prior/manifest.json", scores=scores)
    change("samples/text/manifest.json", prior=manifest_hash(Path("models/prior")))
    change("cards/text.json", samples=manifest_hash(Path("samples/text")))
