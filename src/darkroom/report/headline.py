"""The first thing on the page: a few numbers, each with its error and one plain sentence."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from darkroom.metrics.table import score_names
from darkroom.report.decoder import Told
from darkroom.report.inputs import Inputs
from darkroom.report.numbers import Number, fixed, number, percent
from darkroom.report.scores import DEBIASED, DISTANCES, title, value_of

_NORMAL = 1.96  # standard errors on each side of a 95% interval


@dataclass(frozen=True)
class Headline:
    """A number, as it is and as it is written, what it is called, and what it says."""

    title: str
    value: float
    text: str
    sentence: str
    se: float | None = None
    se_text: str = ""


def wilson(share: float, n: int) -> tuple[float, float]:
    """Return the 95% interval of a fraction of n independent images, valid also at 0 and 1.

    (p + z²/2n ± z sqrt(p (1 - p) / n + z²/4n²)) / (1 + z²/n), z = 1.96; Wilson, 1927.
    """
    z2 = _NORMAL**2 / n
    middle = share + z2 / 2
    reach = _NORMAL * math.sqrt(share * (1 - share) / n + z2 / (4 * n))
    return max(0.0, (middle - reach) / (1 + z2)), min(1.0, (middle + reach) / (1 + z2))


def _share(title: str, share: float, n: int, says: str) -> Headline:
    low, high = wilson(share, n)
    sentence = f"of {n:,} {says} (95% interval {fixed(100 * low, 1)} to {percent(high)})."
    return Headline(title, share, percent(share), sentence)


def _told(told: Told | None, of: str) -> Iterator[Headline]:
    """Yield how many images show what was told: colour and form where a scene reader judged, else the class."""
    if told is None:
        return
    scores, n = told.scored.scores, told.scored.card.n_fake
    if "colour_and_form" in scores:
        says = f"images made of {of} show things of the right colour and form, to a network that reads such pictures"
        yield _share(f"Colour and form, of {of}", scores["colour_and_form"], n, says)
    elif "label_accuracy" in scores:
        says = f"images made of {of} are taken for the class of the image that was told of, by the same classifier"
        yield _share(f"Label accuracy, of {of}", scores["label_accuracy"], n, says)


def _difference(run: Number, real: Number) -> str:
    """Say how far the run lies from unseen real images, in the light of both errors, which are independent."""
    gap = number(run.value - real.value, math.hypot(run.se or 0.0, real.se or 0.0))
    size = f"{gap.text} ± {gap.se_text}"
    if abs(gap.value) <= 2 * (gap.se or 0.0):
        return (
            f"the difference, {size}, is within two standard errors, so this distance does not tell generated from real"
        )
    if gap.value > 0:
        return f"the generated images lie further from the reference, by {size}"
    return f"the generated images lie nearer to the reference, by {size}, as copies of training images would"


def headlines(inputs: Inputs) -> list[Headline]:
    """Return the numbers at the top: label accuracy, a distance for each extractor, what was told, reconstructions."""
    found: list[Headline] = []
    scores, n = inputs.generator.scores, inputs.generator.card.n_fake
    if "label_accuracy" in scores:
        share = scores["label_accuracy"]
        found.append(
            _share(
                "Label accuracy",
                share,
                n,
                "generated images are taken for the class that was requested, by a classifier trained on real images",
            )
        )
    for extractor, floor in inputs.reference.extractors.items():
        name = DEBIASED[extractor]
        run, real = value_of(name, scores), value_of(name, score_names(extractor, floor.held_out))
        if run is None or real is None:
            continue
        found.append(
            Headline(
                f"{DISTANCES[extractor]}, without its bias",
                run.value,
                run.text,
                f"from the real images of the {inputs.reference.split} split. Real images of the "
                f"{inputs.reference.held_out} split score {real.text} ± {real.se_text}: {_difference(run, real)}.",
                run.se,
                run.se_text,
            )
        )
    found += [*_told(inputs.decoder, "embeddings"), *_told(inputs.text, "captions")]
    card = inputs.tokenizer.card
    if psnr := value_of("psnr", inputs.tokenizer.scores):
        found.append(
            Headline(
                title("psnr"),
                psnr.value,
                psnr.text,
                f"between {card.n_fake:,} real images of the {card.reference.split} split and their reconstructions: "
                "how much of an image survives the latents.",
                psnr.se,
                psnr.se_text,
            )
        )
    return found
