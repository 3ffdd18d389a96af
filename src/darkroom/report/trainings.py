"""The section on trainings: curves as charts, and the values in their captions."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

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
_DISTANCES = {"fd": "biased", "fd_debiased": "debiased"}
_FOUND = {"zero_shot_accuracy": "band-1", "image_to_text_r1": "band-2", "text_to_image_r1": "band-4"}
_CALLED = {"band-1": "class", "band-2": "caption", "band-4": "image"}
_COSINES = {"cosine": "band-1", "cosine_text": "band-2", "cosine_other": "band-4"}
_NEAR = {"band-1": "made", "band-2": "of the text", "band-4": "of another image"}


@dataclass(frozen=True)
class Drawn:
    """The charts of one training, empty where nothing was logged, and the values in its captions."""

    title: str
    loss: Markup
    learning_rate: Markup
    bands: Markup
    scores: tuple[Markup, ...]
    labelled: bool  # whether a label accuracy is among them
    found: Markup  # the retrieval scores of CLIP
    cosines: Markup  # the cosines of the prior's embeddings
    points: tuple[int, int]
    lowest: tuple[Number, float] | None  # the lowest validation loss, and the images seen when it was found
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
    names = {label: name for name, label in _DISTANCES.items()}
    distances = _scores(training, _DISTANCES, "Fréchet distance", names=names)
    labels, width = {"label_accuracy": "accuracy"}, _NARROW if distances else _WIDE
    accuracy = _scores(training, labels, "label accuracy", y_range=(0.0, 1.0), width=width, x_ticks=3)
    rate = {"rate": training.learning_rate.points}
    return Drawn(
        title=title,
        loss=line_chart(
            {"train": training.train.points, "val": training.val.points}, f"{title}: loss", "loss", _WIDE, _HEIGHT
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
        scores=tuple(chart for chart in (distances, accuracy) if chart),
        labelled=bool(accuracy),
        found=_scores(training, _FOUND, "fraction found", names=_CALLED, y_range=(0.0, 1.0)),
        cosines=_scores(training, _COSINES, "cosine with the embedding of the image", "cosine", names=_NEAR, log=False),
        points=(len(training.train.points), len(training.val.points)),
        lowest=(number(lowest[1]), lowest[0]) if lowest else None,
        bands_missing=not all(curve.points for curve in training.bands.values()),
        left_out=sum(curve.left_out for curve in curves),
        findings=tuple((_with_keys(found.text), found.warning) for found in findings(training)),
    )


def _with_keys(sentence: str) -> Markup:
    """Return a sentence as HTML, with what stands between backticks as code."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(sentence))))


def _scores(training: Training, labels: Mapping[str, str], what: str, axis: str = "", **style: Any) -> Markup:
    """Return a chart of the scores that `labels` names, each with the name of its line."""
    lines = {label: training.scores[name].points for name, label in labels.items()}
    usual: dict[str, Any] = {"width": _WIDE, "height": _HEIGHT, "dots": labels.values()}
    return line_chart(lines, f"{title_of(training.name)}: {what} while training", axis or what, **usual | style)
