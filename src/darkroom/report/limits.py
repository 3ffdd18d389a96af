"""What limits the quality of generated images, from scores alone: for `darkroom scores`, the page and a log.

At best, generated images are as good as reconstructions of real ones. So of the distance from real images, above that
of held-out real images, the tokenizer has its `rfd`, whose own floor is 0: both of its sides are the same images.
"""

import math
import statistics
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from darkroom.artifacts.manifest import ArtifactError
from darkroom.metrics.sample_scores import SPACES
from darkroom.report.curves import CURVES, TITLES, Training, course, read_training
from darkroom.report.numbers import number, percent
from darkroom.report.scores import distance_beside_real, error_of, title

SHARE = 0.4  # of the distance above real images: from here on the tokenizer limits
_NOISE = 2.0  # standard errors up to which a difference is noise
_LESS = 0.9  # of the variety of real images: above it, little is missing
_GAP = 1.2  # validation loss / training loss from which more images would help
_END = 3  # points whose mean is the end of a curve
_VARIETY, _QUALITY = ("diversity", "coverage", "recall"), ("precision", "density")
_TOKENIZER, _GENERATOR = "`images` of `train_tokenizer.training`", "`images` of `train_generator.training`"

Scores = Mapping[str, float]


class Limit(NamedTuple):
    """What limits the quality, in a word, and a sentence: the scores that show it, what to change, what that costs."""

    name: str  # data, tokenizer, guidance, length, size, nothing, unknown
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
        trainings: the curves of tokenizer and generator, as far as they are known.
    """
    baselines, ends = card.get("baselines", {}), {name: course(of) for name, of in trainings.items()}
    _, run, real = distance_beside_real(scores, baselines)
    if run is None:
        return None
    beside = f"{run.text}, of held-out real images {real.text}" if real else run.text
    above, rfd = run.value - (real.value if real else 0.0), tokenizer.get("rfd", 0.0)
    is_noise = above <= _NOISE * math.hypot(run.se or 0.0, (real and real.se) or 0.0)
    if copies := _above_real(scores, baselines.get("copies", {}), [f"copies_{space}" for space in SPACES]):
        shares = f"{percent(copies[1])} of the images are copies of training images, of held-out real images"
        text = f"{shares} {percent(copies[2])} (`{copies[0]}`). Add images, or halve the {_GENERATOR}."
        return Limit("data", f"Too few images: {text}")
    if not is_noise and rfd >= SHARE * above:
        of_distance = f"{min(1.0, rfd / above):.0%} of what the distance ({beside}) is above that"
        known, again = ends.get("tokenizer"), "the generator is trained again"
        change = f"Double the {_TOKENIZER}: twice its time, and {again}."
        if known is not None and not known.falling:
            change = f"Its loss no longer falls: give its latents more channels. It is trained again, and {again}."
        return Limit("tokenizer", f"The tokenizer: `rfd`, {number(rfd).text}, is {of_distance}. {change}")
    if text := _guidance(scores, card):
        return Limit("guidance", text)
    if is_noise:
        found = f"Nothing found: the distance ({beside}) is not above that of real images, within noise"
        return Limit("nothing", f"{found}. Look at the images, too.")
    if (generator := ends.get("generator")) is None:
        return Limit(
            "unknown", f"Unknown: no curve of the generator shows whether the distance ({beside}) was still falling."
        )
    judge = f"{TITLES[generator.judge][0].lower()}{TITLES[generator.judge][1:]}"
    if generator.falling:
        fell = f"{judge} still fell, to {generator.last:.3g} from {generator.half:.3g} at half of the images"
        return Limit("length", f"The length of the training: {fell}. Double the {_GENERATOR}: twice its time.")
    text, of = f"the distance is {beside}, and {judge} no longer falls", trainings["generator"]
    train, val = (statistics.fmean([y for _, y in each.points[-_END:]] or [0.0]) for each in (of.train, of.val))
    if val > _GAP * train > 0:
        gap = f"the loss of validation images is {val:.3g}, of training images {train:.3g}"
        return Limit("data", f"Too few images: {text}; {gap}. Add images.")
    wider = "Raise `width` and `depth` of its `model`: its time grows with width² × depth"
    return Limit("size", f"The size of the generator: {text}. {wider}.")


def _above_real(scores: Scores, real: Scores, names: list[str], sign: int = 1) -> tuple[str, float, float] | None:
    """Return the first score above that of real images by more than noise (sign -1: below), and both values."""
    for name in names:
        error = math.hypot(scores.get(error_of(name), 0.0), real.get(error_of(name), 0.0))
        if name in scores and name in real and sign * (scores[name] - real[name]) > _NOISE * error:
            return name, scores[name], real[name]
    return None


def _guidance(scores: Scores, card: Mapping[str, Any]) -> str:
    """Return a sentence on guidance if images are as good as real ones, and less different from each other."""
    baselines, sampler = card.get("baselines", {}), (card.get("treatment") or {}).get("sampler") or {}
    real = baselines.get("held_out", {}).get("in_domain", {}) | baselines.get("diversity", {})
    scale, quality = sampler.get("guidance") or 1.0, [name for name in _QUALITY if name in scores and name in real]
    few = [name for name in _VARIETY if name in real and scores.get(name, math.inf) < _LESS * real[name]]
    low = _above_real(scores, real, few, -1)
    if scale <= 1 or not low or not quality or _above_real(scores, real, quality, -1):
        return ""
    good, few_text = (
        f"{title(name)} {number(run).text}; real images {number(unseen).text}"
        for name, run, unseen in ((quality[0], scores[quality[0]], real[quality[0]]), low)
    )
    text = f"Guidance {scale:g} makes images realistic ({good}) but less varied ({few_text})."
    return f"{text} Lower `guidance` in `sample_generator`: only sampling and scoring will run again."


def read_trainings() -> dict[str, Training]:
    """Return the curves of tokenizer and generator in the working folder, if they are there and sound."""
    trainings = {}
    for name in ("tokenizer", "generator"):
        with suppress(ArtifactError):
            trainings[name] = read_training(CURVES / name)
    return trainings
