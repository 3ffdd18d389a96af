"""The section on trainings: curves as charts, and the values in their captions."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from markupsafe import Markup, escape

from darkroom.report.charts import line_chart
from darkroom.report.curves import Training, findings
from darkroom.report.numbers import Number, number

_WIDE, _NARROW, _HEIGHT = 460, 260, 220  # px of the charts
_TITLES = {
    "teacher": "Teacher",
    "tokenizer": "Tokenizer",
    "extractor": "Extractor",
    "generator": "Generator",
    "classifier": "Classifier of noisy latents",
    "distilled": "Generator, distilled",
    "clip": "CLIP",
    "prior": "Prior",
    "scene_reader": "Scene reader",
}
# The classes of lines in the style sheet, each with a colour and a dash pattern.
_BANDS = {"0_25": "band-1", "25_50": "band-2", "50_75": "band-3", "75_100": "band-4"}
# By score: the class of its line, and its name in the key.
_DISTANCES = {"fd": ("biased", "fd"), "fd_debiased": ("debiased", "fd_debiased")}
_FRACTIONS = {
    "label_accuracy": ("accuracy", "label accuracy"),
    "zero_shot_accuracy": ("band-1", "class found"),
    "image_to_text_r1": ("band-2", "caption found"),
    "text_to_image_r1": ("band-4", "image found"),
    "cosine": ("band-1", "made"),
    "cosine_text": ("band-2", "of the text"),
    "cosine_other": ("band-4", "of another image"),
}


@dataclass(frozen=True)
class Drawn:
    """The charts of one training, empty if nothing was logged, and the values in its captions."""

    title: str
    loss: Markup
    learning_rate: Markup
    bands: Markup
    scores: tuple[Markup, ...]
    points: tuple[int, int]
    lowest: tuple[Number, float] | None  # the lowest validation loss, and the images seen when it was found
    perplexity: Number | None  # of codes, at that loss
    bands_missing: bool
    left_out: int
    findings: tuple[tuple[Markup, bool], ...]  # sentences on its length, and whether each is a warning


def title_of(name: str) -> str:
    """Return the title of a training; `decoder/NAME` is a U-Net of the decoder."""
    group, _, unet = name.partition("/")
    return f"Decoder: U-Net {unet}" if group == "decoder" else _TITLES[name]


def drawn(training: Training) -> Drawn:
    """Return the charts of a training."""
    title, lowest = title_of(training.name), training.val.lowest
    curves = [training.train, training.val, *training.bands.values(), *training.scores.values()]
    rate = {"rate": training.learning_rate.points}
    return Drawn(
        title=title,
        loss=line_chart(
            {
                "train": training.train.points,
                "val": training.val.points,
                "band-4": training.unigram.points,
                "band-3": training.uniform.points,
            },
            f"{title}: loss",
            "loss",
            _WIDE,
            _HEIGHT,
            names={"band-4": "code frequencies", "band-3": "equal frequencies"},
        ),
        learning_rate=line_chart(
            rate, f"{title}: learning rate", "learning rate", _NARROW, _HEIGHT, x_ticks=3, log=False
        ),
        bands=line_chart(
            {_BANDS[band]: curve.points for band, curve in training.bands.items()},
            f"{title}: validation loss by band of the diffusion time",
            "validation loss",
            _WIDE,
            _HEIGHT + 18,  # the key takes a row of its own
            names={name: f"t {band.replace('_', '–')}%" for band, name in _BANDS.items()},
            dots=(),
        ),
        scores=tuple(filter(None, (_scores(training, styles) for styles in (_DISTANCES, _FRACTIONS)))),
        points=(len(training.train.points), len(training.val.points)),
        lowest=(number(lowest[1]), lowest[0]) if lowest else None,
        perplexity=number(math.exp(lowest[1])) if lowest and training.unigram.points else None,
        bands_missing=not all(curve.points for curve in training.bands.values()),
        left_out=sum(curve.left_out for curve in curves),
        findings=tuple((with_keys(finding.text), finding.warning) for finding in findings(training)),
    )


def with_keys(sentence: str) -> Markup:
    """Return a sentence as HTML, with text between backticks as code."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(sentence))))


def _scores(training: Training, styles: Mapping[str, tuple[str, str]]) -> Markup:
    """Return a chart of the scores in `styles` that were logged."""
    names = {style: name for score, (style, name) in styles.items() if training.scores[score].points}
    return line_chart(
        {style: training.scores[score].points for score, (style, _) in styles.items() if training.scores[score].points},
        f"{title_of(training.name)}: scores while training",
        "Fréchet distance" if styles is _DISTANCES else "score",
        _WIDE,
        _HEIGHT,
        log=styles is _DISTANCES,
        names=names,
        dots=names,
    )
