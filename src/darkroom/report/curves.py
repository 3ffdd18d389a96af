"""The curves of a training, from DVCLive's tables with the images seen as the step, and notes on its length.

A score of held-out images assesses the length: for a generator that is scored in training, the distance from real ones.
"""

import csv
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from darkroom.artifacts.manifest import ArtifactError

CURVES, TABLES = Path("curves"), Path("plots/metrics")
BANDS = ("0_25", "25_50", "50_75", "75_100")  # ranges of the diffusion time, in percent
# The scores during training: of generators, of CLIP, and of the prior.
SCORES = (
    *("fd", "fd_debiased", "label_accuracy"),
    *("zero_shot_accuracy", "image_to_text_r1", "text_to_image_r1"),
    *("cosine", "cosine_text", "cosine_other"),
)


@dataclass(frozen=True)
class Curve:
    """Points (images seen, value) in the order of the file, and the number of values that are not finite."""

    points: tuple[tuple[float, float], ...] = ()
    left_out: int = 0

    @property
    def lowest(self) -> tuple[float, float] | None:
        """The first of the points with the lowest value."""
        return min(self.points, key=lambda point: point[1], default=None)


@dataclass(frozen=True)
class Training:
    """The curves of one training; quantities that were not logged have no points.

    train, val: the losses; of captioned codes without that of the caption.
    unigram, uniform: the loss that the frequencies of the codes alone give, or equal ones, of generators of codes.
    bands: the validation loss by ranges of the diffusion time.
    scores: the scores during training.
    judge: the curve of the model's quality on images that are not trained on; `judged` are its points.
    epoch: how often each training image was seen, on average.
    """

    name: str
    train: Curve
    val: Curve
    unigram: Curve
    uniform: Curve
    learning_rate: Curve
    bands: Mapping[str, Curve]
    scores: Mapping[str, Curve]
    judge: str
    judged: Curve
    epoch: Curve


# The curve that judges a training, by model; for others, the validation loss. The loss of noisy images says little of
# images, and the loss of classifiers and CLIP rises when they are overconfident.
_JUDGES = {
    "generator": "eval/fd_debiased",
    "decoder": "eval/fd_debiased",
    "prior": "eval/cosine",
    "clip": "eval/image_to_text_r1",
    "extractor": "val/accuracy",
    "teacher": "val/accuracy",
    "classifier": "val/accuracy",
}


def read_training(folder: Path) -> Training:
    """Return the curves of the training that wrote `folder`, named after it: clip, or decoder/base.

    Raises:
        ArtifactError: the folder is missing, or a table has other values than numbers; names file and line.
    """
    name = folder.relative_to(CURVES).as_posix()
    judge = _JUDGES.get(name.partition("/")[0], "val/loss")
    judged, unigram = read_curve(folder, judge), read_curve(folder, "val/unigram")
    # The loss of captioned codes is also that of the caption's tokens.
    loss = "codes" if unigram.points and read_curve(folder, "val/codes").points else "loss"
    if any(value <= 0 for _, value in judged.points) and judge == "val/loss":
        judge = "val/reconstruction"  # the loss includes a density
        judged = read_curve(folder, judge)
    return Training(
        name=name,
        train=read_curve(folder, f"train/{loss}"),
        val=read_curve(folder, f"val/{loss}"),
        unigram=unigram,
        uniform=read_curve(folder, "val/uniform"),
        learning_rate=read_curve(folder, "learning_rate"),
        bands={band: read_curve(folder, f"val/loss_time_{band}") for band in BANDS},
        scores={score: read_curve(folder, f"eval/{score}") for score in SCORES},
        judge=judge,
        judged=judged,
        epoch=read_curve(folder, "epoch"),
    )


def read_curve(folder: Path, name: str) -> Curve:
    """Return a curve of the training that wrote `folder`; it has no points if the quantity was never logged.

    Raises:
        ArtifactError: the folder is missing, or the table has other values than numbers; names file and line.
    """
    if not folder.is_dir():
        raise ArtifactError(f"{folder} is missing: run `dvc repro`.")
    path = folder / TABLES / f"{name}.tsv"
    if not path.exists():  # DVCLive makes the file with its first point
        return Curve()
    column = name.rpartition("/")[2]
    points: list[tuple[float, float]] = []
    left_out = 0
    try:
        with path.open(newline="") as file:
            for line, row in enumerate(csv.DictReader(file, delimiter="\t"), start=2):
                try:
                    images, value = float(row["step"]), float(row[column])
                except (KeyError, TypeError, ValueError) as error:
                    raise ArtifactError(
                        f"{path}, line {line}, does not hold the numbers `step` and `{column}`: run the training again."
                    ) from error
                if math.isfinite(value):
                    points.append((images, value))
                else:
                    left_out += 1
    except UnicodeDecodeError as error:
        raise ArtifactError(f"{path} is not text: restore it with `dvc checkout {folder}`.") from error
    return Curve(tuple(points), left_out)


# The names of these curves in sentences. Lower is better: a score that rises to 1 is subtracted from 1.
TITLES = {
    "val/loss": "The validation loss",
    "val/reconstruction": "The reconstruction loss of the validation images",
    "val/accuracy": "The error rate on the validation images",
    "eval/image_to_text_r1": "The fraction of validation images whose caption is not found",
    "eval/fd_debiased": "The Fréchet distance from training images",
    "eval/cosine": "What the cosine lacks to 1",
}
_RISING = ("val/accuracy", "eval/image_to_text_r1", "eval/cosine")
_RISE = 0.02  # of the judged score above its lowest: less is noise
_LAST = 3  # scores at the end that must all lie above the lowest; shorter curves are not judged


class Course(NamedTuple):
    """How the curve that judges a training went: its name in `TITLES`, and its values; lower ones are better."""

    judge: str
    best: float  # images seen at the lowest value
    lowest: float
    last: float
    half: float  # the value at half of the images
    risen: bool  # the last three values all lie 2 % above the lowest
    falling: bool  # it was lowest in the last third, 2 % below the value at half of the images


def course(training: Training) -> Course | None:
    """Return the course of the curve that judges a training; None: it has too few points.

    For a generator or a decoder that is not scored in training, the curve is the validation loss.
    """
    judge, curve = (training.judge, training.judged) if training.judged.points else ("val/loss", training.val)
    points = [(image, 1 - value if judge in _RISING else value) for image, value in curve.points]
    if len(points) < _LAST:
        return None
    (best, lowest), (end, last) = min(points, key=lambda point: point[1]), points[-1]
    half = next(value for image, value in points if 2 * image >= end)
    risen = min(value for _, value in points[-_LAST:]) - lowest > _RISE * abs(lowest)
    falling = not risen and 3 * best > 2 * end and half - lowest > _RISE * abs(half)
    return Course(judge, best, lowest, last, half, risen, falling)


@dataclass(frozen=True)
class Finding:
    """A sentence on the length of a training; `warning`: it was too long."""

    text: str
    warning: bool = False


def findings(training: Training) -> tuple[Finding, ...]:
    """Return notes on how often images were seen, and whether the training ended too early or too late."""
    if not training.train.points:
        return ()
    notes = []
    if training.epoch.points:
        images, epochs = training.epoch.points[-1]
        notes.append(Finding(f"{images:,.0f} images seen, each of the training images {epochs:.3g} times."))
    if (ends := course(training)) is None:
        return tuple(notes)
    title, last = TITLES[ends.judge], f"{ends.last:.3g}"
    if ends.risen:
        text = f"{title} was lowest at image {ends.best:,.0f} and has risen since, to {last} from {ends.lowest:.3g}."
        notes.append(Finding(text, warning=True))
    elif ends.falling:
        notes.append(Finding(f"{title} still fell at the end, to {last} from {ends.half:.3g} at half of the images."))
    return tuple(notes)
