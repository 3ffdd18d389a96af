"""What limits the quality of generated images, from scores alone: for `darkroom scores`, the page and a log.

At best, generated images are as good as reconstructions of real ones. So of the distance from real images, above that
of held-out real images, the tokenizer has its `rfd`, whose own floor is 0: both of its sides are the same images.
"""

import math
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from darkroom.artifacts.manifest import ArtifactError
from darkroom.metrics.sample_scores import SPACES
from darkroom.report.curves import CURVES, TITLES, Course, Training, course, read_training
from darkroom.report.metadata import read_json
from darkroom.report.numbers import number, percent
from darkroom.report.scores import distance_beside_real, error_of, title

METRICS = Path("metrics/tokenizer.json")
TRAININGS = ("tokenizer", "generator")  # whose curves are read
SHARE = 0.4  # of the distance above real images: from here on the tokenizer limits
_NOISE = 2.0  # standard errors up to which a difference is noise
_LESS = 0.9  # of the variety of real images: above it, little is missing
_GAP = 1.2  # validation loss / training loss from which more images would help
_END = 3  # points whose mean is the end of a curve
_VARIETY, _QUALITY = ("diversity", "coverage", "recall"), ("precision", "density")
_TOKENIZER, _GENERATOR = "`images` of `train_tokenizer.training`", "`images` of `train_generator.training`"

Scores = Mapping[str, float]


class Limit(NamedTuple):
    """What limits the quality, in a word: tokenizer, data, guidance, length, size, nothing or unknown; and a sentence.

    The sentence has the scores that show it, what to change, and what that costs.
    """

    name: str
    text: str


def limit(
    scores: Scores, card: Mapping[str, Any], tokenizer: Scores, trainings: Mapping[str, Training]
) -> Limit | None:
    """Return what limits a generator; None: its images have no distance.

    The first of: copies, the tokenizer, guidance, the length of the training, too few images or a small network.

    Args:
        scores: metrics/generator.json.
        card: its card.
        tokenizer: metrics/tokenizer.json; empty: unknown.
        trainings: the curves of `TRAININGS`, as far as they are known.
    """
    baselines, ends = card.get("baselines", {}), {name: course(of) for name, of in trainings.items()}
    _, run, real = distance_beside_real(scores, baselines)
    if run is None:
        return None
    beside = f"{run.text}, of held-out real images {real.text}" if real else run.text
    above = run.value - (real.value if real else 0.0)
    noise = _NOISE * math.hypot(run.se or 0.0, (real and real.se) or 0.0)
    rfd = tokenizer.get("rfd", 0.0)
    if verdict := _copies(scores, baselines.get("copies", {})):
        return verdict
    if above > noise and rfd >= SHARE * above:
        of_distance = f"{min(1.0, rfd / above):.0%} of what the distance ({beside}) is above that"
        return Limit("tokenizer", f"The tokenizer: `rfd`, {number(rfd).text}, is {of_distance}. {_longer(ends)}")
    if verdict := _guidance(scores, card):
        return verdict
    if above <= noise:
        return Limit("nothing", f"Nothing that these scores show: the difference of the distance ({beside}) is noise.")
    if (generator := ends.get("generator")) is None:
        return Limit("unknown", f"Unknown: curves/generator does not say if the distance ({beside}) still fell.")
    judge = f"{TITLES[generator.judge][0].lower()}{TITLES[generator.judge][1:]}"
    if generator.falling:
        fell = f"{judge} still fell, to {generator.last:.3g} from {generator.half:.3g} at half of the images"
        return Limit("length", f"The length of the training: {fell}. Double the {_GENERATOR}: twice its time.")
    return _network(trainings["generator"], f"the distance is {beside}, and {judge} no longer falls")


def _longer(ends: Mapping[str, Course | None]) -> str:
    known = ends.get("tokenizer")
    if known is None or known.falling:
        return f"Double the {_TOKENIZER}: twice its time, and the generator is trained again."
    return "Its loss no longer falls: give its latents more channels. Both networks are trained again."


def _copies(scores: Scores, floor: Scores) -> Limit | None:
    """Return the data as the limit if more generated images than held-out real ones are copies."""
    for name in (f"copies_{space}" for space in SPACES):
        run, real, error = scores.get(name, 0.0), floor.get(name, 0.0), error_of(name)
        if run - real > _NOISE * math.hypot(scores.get(error, 0.0), floor.get(error, 0.0)):
            shares = (
                f"{percent(run)} of the images are copies of training images, of held-out real images {percent(real)}"
            )
            return Limit("data", f"Too few images: {shares} (`{name}`). Add images, or halve the {_GENERATOR}.")
    return None


def _guidance(scores: Scores, card: Mapping[str, Any]) -> Limit | None:
    """Return guidance as the limit if images are as good as real ones, and less different from each other."""
    baselines = card.get("baselines", {})
    real = baselines.get("held_out", {}).get("in_domain", {}) | baselines.get("diversity", {})
    scale = ((card.get("treatment") or {}).get("sampler") or {}).get("guidance") or 1.0

    def below(name: str) -> bool:
        error = math.hypot(scores.get(error_of(name), 0.0), real.get(error_of(name), 0.0))
        return real[name] - scores[name] > _NOISE * error

    variety, quality = ([name for name in names if name in scores and name in real] for names in (_VARIETY, _QUALITY))
    low = [name for name in variety if below(name) and scores[name] < _LESS * real[name]]
    if scale <= 1 or not low or not quality or any(map(below, quality)):
        return None
    good, few = (
        f"{title(name)} {number(scores[name]).text}, of real images {number(real[name]).text}"
        for name in (quality[0], low[0])
    )
    text = f"Guidance {scale:g}: images lie among real ones ({good}), and are less varied ({few})."
    return Limit("guidance", f"{text} Lower `sample_generator.dit.guidance`: only sampling and scoring run again.")


def _network(training: Training, text: str) -> Limit:
    """Return the data or the size of the network as the limit of a generator whose training was long enough."""
    train, val = ([value for _, value in curve.points[-_END:]] for curve in (training.train, training.val))
    if train and val and (losses := (statistics.fmean(val), statistics.fmean(train))) and losses[0] > _GAP * losses[1]:
        gap = f"the loss of validation images is {losses[0]:.3g}, of training images {losses[1]:.3g}"
        return Limit("data", f"Too few images: {text}; {gap}. Add images.")
    wider = "Raise `train_generator.dit.model.width` and `.depth`: its time grows with width² × depth"
    return Limit("size", f"The size of the generator: {text}. {wider}.")


def read_trainings() -> dict[str, Training]:
    """Return the curves of `TRAININGS` in the working folder; those that are missing or damaged are left out."""
    trainings = {}
    for name in TRAININGS:
        try:
            trainings[name] = read_training(CURVES / name)
        except ArtifactError:
            continue
    return trainings


def read_limit(scored: bool = True) -> Limit | None:
    """Return what limits the generator in the working folder; `scored`: whether `METRICS` are of its tokenizer.

    Raises:
        ArtifactError: the scores or the card are missing or damaged.
    """
    scores, card = (read_json(Path(folder) / "generator.json") for folder in ("metrics", "cards"))
    return limit(scores, card, read_json(METRICS) if scored else {}, read_trainings())
