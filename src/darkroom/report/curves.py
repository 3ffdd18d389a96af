"""The curves of a training, and what they say of its length: too few images, enough, or so many that it memorises.

They are DVCLive's tables, one for each quantity, with the images seen as the step. A score of held-out images judges,
of a generator its distance from training images, never the loss of noisy ones alone; only memorising is seen in that,
too.
"""

import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from darkroom.artifacts.manifest import ArtifactError
from darkroom.training.plateau import TITLES, Points, Trend, exponent_of, last_half, rest_of, scoring_keys, trend

CURVES, TABLES = Path("curves"), Path("plots/metrics")
BANDS = ("0_25", "25_50", "50_75", "75_100")  # ranges of the diffusion time, in percent
# The scores of evaluation during training: of what generates, of CLIP, and of the prior.
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

    bands: the validation loss by ranges of the diffusion time.
    scores: those of evaluation during training.
    judge: the curve that says how good the model is, on images that are not trained on; `judged` are its points.
    epoch: how often each training image was seen, on average.
    """

    name: str
    train: Curve
    val: Curve
    learning_rate: Curve
    bands: Mapping[str, Curve]
    scores: Mapping[str, Curve]
    judge: str
    judged: Curve
    epoch: Curve


# What judges a training, by what it trains; the validation loss judges the others. That of noisy images says little of
# images, and that of classifiers and CLIP rises where they are too sure, right or wrong.
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
        ArtifactError: the folder is missing, or a table is not one of numbers; names file and line.
    """
    name = folder.relative_to(CURVES).as_posix()
    judge = _JUDGES.get(name.partition("/")[0], "val/loss")
    judged = read_curve(folder, judge)
    if any(value <= 0 for _, value in judged.points) and judge == "val/loss":
        judge = "val/reconstruction"  # the loss is that of a density
        judged = read_curve(folder, judge)
    return Training(
        name=name,
        train=read_curve(folder, "train/loss"),
        val=read_curve(folder, "val/loss"),
        learning_rate=read_curve(folder, "learning_rate"),
        bands={band: read_curve(folder, f"val/loss_time_{band}") for band in BANDS},
        scores={score: read_curve(folder, f"eval/{score}") for score in SCORES},
        judge=judge,
        judged=judged,
        epoch=read_curve(folder, "epoch"),
    )


def read_curve(folder: Path, name: str) -> Curve:
    """Return a curve of the training that wrote `folder`; without a point where the quantity was never logged.

    Raises:
        ArtifactError: the folder is missing, or the table is not one of numbers; names file and line.
    """
    if not folder.is_dir():
        raise ArtifactError(f"{folder} is missing: run the stage that makes it (`dvc repro`).")
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


LITTLE = 0.1  # of the score: what twice the images bring at least where more are advised
_RISE = 0.02  # of the validation loss above its lowest: less is no memorising, however small its noise
_FEWEST = 3  # scores behind a trend
_DISTANCE = "eval/fd_debiased"  # from training images: it may fall long after the validation loss has begun to rise
# Scores that do not fall where the loss rises because of too much confidence.
_SURE = ("val/accuracy", "eval/image_to_text_r1", "eval/cosine")


@dataclass(frozen=True)
class Finding:
    """A sentence on the length of a training; `warning`: it was too short or too long."""

    text: str
    warning: bool = False


def findings(training: Training) -> tuple[Finding, ...]:
    """Return what a person should know of the length of a training; nothing of one that there was not."""
    if not training.train.points:
        return ()
    found = [_seen(training)] if training.epoch.points else []
    if over := _memorised(training):
        found.append(over)
        if training.judge != _DISTANCE or not training.judged.points:
            return tuple(found)
    if short := _short(training):
        found.append(short)
    return tuple(found)


def section_of(name: str) -> str:
    """Return the section of params.yaml of a training."""
    group, _, unet = name.partition("/")
    return f"train_{group}.unets.{unet}" if unet else f"train_{group}"


def _seen(training: Training) -> Finding:
    images, epochs = training.epoch.points[-1]
    return Finding(f"{images:,.0f} images seen, each of the training images {epochs:.3g} times.")


# --------------------------------------------------------------------------------------------------------------------
# Too short


def _short(training: Training) -> Finding | None:
    """Return a warning where twice the images would take more than `LITTLE` of the score away, by more than its error.

    A note where the scores do not say, and on a distance also where more images would bring little; else None.

    While the learning rate falls a score improves even where more images would bring nothing. So two trends are found
    and the smaller one counts, as each is at least what more images bring: that of the last half of all images, in
    which the rate may fall, and that of the last half of those at half of the highest rate or more, which come before.
    """
    section = section_of(training.name)
    points = rest_of(training.judge, training.judged.points)
    if not points:
        if training.judge != _DISTANCE or not training.val.points:
            return None
        return Finding(
            "Whether more images would help is not known, as the loss of noisy ones says little: set "
            f"{scoring_keys(section.partition('.')[0])}, and what it makes is scored while it trains."
        )
    rates = training.learning_rate.points
    highest = max((rate for _, rate in rates), default=0.0)
    peak = next((images for images, rate in rates if rate >= 0.99 * highest), 0.0)
    after = [point for point in points if point[0] >= peak]
    if len(after) < _FEWEST:
        return Finding(
            f"Too few scores of held-out images to say whether more images would help: {len(after)} since the highest "
            "learning rate."
        )
    if min(value for _, value in after) <= 0:
        return None
    late = last_half(after)
    found = trend(late if len(late) >= _FEWEST else after[-_FEWEST:])
    fast = max((images for images, rate in rates if 2 * rate >= highest), default=math.inf)
    early = last_half([point for point in after if point[0] <= fast])
    if len(early) > 1:
        found = min(found, trend(early), key=lambda each: each.exponent)
    if found.exponent - found.error <= exponent_of(LITTLE):
        if training.judge != _DISTANCE:
            return None
        enough = found.exponent + found.error < exponent_of(LITTLE)
        what = "Twice the images would improve the Fréchet distance from training images by"
        noise = "of its scores is too large to say"
        return Finding(f"{what} less than a tenth." if enough else f"{what} a tenth or by less: the noise {noise}.")
    return Finding(_advice(training, found, section, points[-1][0]), warning=True)


def _advice(training: Training, found: Trend, section: str, seen: float) -> str:
    more = 10 ** max(3, math.floor(math.log10(seen)) - 1)
    return (
        f"{TITLES[training.judge]} still improves by {_percent(found.of_more(more, seen))} per {more:,} images, "
        f"about {_percent(found.of_doubling)} for twice as many: more `images` of `{section}` would help."
    )


def _percent(fraction: float) -> str:
    """Return a fraction in percent with two digits."""
    return f"{100 * fraction:.{max(0, 1 - math.floor(math.log10(100 * fraction)))}f}%"


# --------------------------------------------------------------------------------------------------------------------
# Too long


def _memorised(training: Training) -> Finding | None:
    """Return a warning where the validation loss has risen by more than its noise, and the training loss has not.

    None where it has not, or where another score does not get worse.

    What is only too sure of itself has not memorised: a classifier whose accuracy does not fall by more than its noise
    while its loss rises, a CLIP that finds as many captions. The Fréchet distance says nothing here: copies of training
    images have the best. It is told beside.
    """
    points = training.val.points
    lowest = training.val.lowest
    if lowest is None:
        return None
    later = [value for images, value in points if images > lowest[0]]
    if len(later) < 2:
        return None
    end = median(later[-3:]) if len(later) > 2 else min(later)
    noise = _noise([value for images, value in points if 2 * images >= lowest[0]])
    rise = (end - lowest[1]) / abs(lowest[1]) if lowest[1] else 0.0
    if end - lowest[1] <= 3 * noise or rise <= _RISE:
        return None
    if not _near(training.train.points, points[-1][0]) < _near(training.train.points, lowest[0]):
        return None
    judged = rest_of(training.judge, training.judged.points) if training.judge in _SURE else ()
    if judged:
        chance = 2 * _noise([value for _, value in judged])
        if _near(judged, points[-1][0]) <= _near(judged, lowest[0]) + (chance if math.isfinite(chance) else 0.0):
            return None
    risen = (
        f"The validation loss was lowest at image {lowest[0]:,.0f} and has risen by {rise:.0%} since, while the "
        "training loss fell: "
    )
    if training.judge == _DISTANCE:
        return Finding(
            f"{risen}it begins to know its images by heart. Samples may get better all the same, or become copies, "
            "which a distance from training images rewards, too: look under Memorisation on the page before you train "
            "longer.",
            warning=True,
        )
    return Finding(
        f"{risen}it memorises. `select: best` in `{section_of(training.name)}` keeps the weights of the lowest; more "
        "or augmented data would help.",
        warning=True,
    )


def _noise(values: Sequence[float]) -> float:
    """Return the standard deviation of what values have beside a smooth curve, from their second differences, robustly.

    Of independent noise the second difference has 6 times its variance; the median of its size is 0.6745 of its
    standard deviation.
    """
    bends = [abs(a - 2 * b + c) for a, b, c in zip(values, values[1:], values[2:], strict=False)]
    return median(bends) / (0.6745 * math.sqrt(6)) if bends else math.inf


def _near(points: Points, images: float) -> float:
    """Return the median of the three values at the points nearest to a number of images."""
    return median(value for _, value in sorted(points, key=lambda point: abs(point[0] - images))[:3])
