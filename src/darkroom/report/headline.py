"""The headline numbers of the page, each with its error and one sentence."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from darkroom.metrics.sample_scores import ENOUGH, held_out_names, score_names
from darkroom.metrics.score import wilson
from darkroom.report.decoder import Conditioned
from darkroom.report.inputs import Inputs
from darkroom.report.numbers import Number, fixed, number, percent
from darkroom.report.scores import Scored, debiased, distance_title, title, value_of


@dataclass(frozen=True)
class Headline:
    """A number with its title, its text and an explanation, and with its standard error where it is known."""

    title: str
    value: float
    text: str
    sentence: str
    se: float | None = None
    se_text: str = ""


def _share(title: str, fraction: float, n: int, says: str, more: str = "") -> Headline:
    low, high = wilson(fraction, n)
    sentence = f"of {n:,} {says} (95% interval {fixed(100 * low, 1)} to {percent(high)}).{more}"
    return Headline(title, fraction, percent(fraction), sentence)


def _real_share(made: Scored) -> str:
    """Return a sentence on what held-out real images of the same classes get, and a constant answer; "": not known."""
    real = made.card.baselines.label_accuracy
    if real is None or real.held_out is None:
        return ""
    return (
        f" Of held-out real images it recognises {percent(real.held_out)}; a constant answer would be right for "
        f"{percent(real.constant)}."
    )


def _conditioned(conditioned: Conditioned | None, of: str, labelled: bool) -> Iterator[Headline]:
    """Yield how many images follow their condition: in colour and form by the attribute classifier, else in class."""
    if conditioned is None:
        return
    scores, n = conditioned.scored.scores, conditioned.scored.card.n_fake
    if "colour_and_form" in scores:
        says = f"images made of {of} show things of the right colour and form, to a network that reads such pictures"
        yield _share(f"Colour and form, of {of}", scores["colour_and_form"], n, says)
    elif labelled and "label_accuracy" in scores:
        says = f"images made of {of} are classified as the class of the original image, by the same classifier"
        more = _real_share(conditioned.scored)
        yield _share(f"Label accuracy, of {of}", scores["label_accuracy"], n, says, more)


def _difference(run: Number, real: Number, split: str) -> str:
    """Return a sentence on the difference of the run and real images of the other split, with independent errors."""
    gap = number(run.value - real.value, math.hypot(run.se or 0.0, real.se or 0.0))
    size = f"{gap.text} ± {gap.se_text}"
    if abs(gap.value) <= 2 * (gap.se or 0.0):
        return f"the difference, {size}, is within two standard errors, so this distance does not separate them"
    if gap.value > 0:
        return f"the generated images lie further from the reference, by {size}"
    copies = ", as copies of training images would" if split == "train" else ""
    return f"the generated images lie nearer to the reference, by {size}{copies}"


def _distance(inputs: Inputs, made: Scored, extractor: str, of: str) -> Headline | None:
    """Return the distance of an extractor: from held-out images where these are enough, which rewards no copy."""
    reference, baselines = inputs.reference, made.card.baselines
    name, splits, floors = debiased(extractor), (reference.split, reference.held_out), baselines.held_out
    unseen = name.replace("_debiased", "_held_out_debiased")
    if unseen in made.scores:
        name, splits, floors = unseen, splits[::-1], baselines.train
    floor = floors.get(extractor, {})

    def of_real(scores: Mapping[str, float]) -> Number | None:
        return value_of(name, score_names(extractor, scores if name != unseen else held_out_names(scores)))

    run, real = value_of(name, made.scores), of_real(floor)
    if run is None:
        return None
    unseen_too = ", which no training saw" * (name == unseen)
    sentence = (
        f"how far the generated images lie from the real ones of the {splits[0]} split{unseen_too}; less is better."
    )
    if real is not None:
        as_many = f" {floor['n']:,.0f} real images of the {splits[1]} split, of the same classes, score"
        sentence += f"{as_many} {real.text} ± {real.se_text}: {_difference(run, real, splits[0])}."
    there = reference.extractors[extractor]
    needed, count = ENOUGH * there.dim, there.held_out["n"]
    if name != unseen and count < needed:
        sentence += (
            f" The {reference.held_out} split ({count:,.0f} images; {needed:,} are needed) is too small "
            "to be the reference, so copies of training images lower this distance: see Memorisation."
        )
    return Headline(
        f"{distance_title(extractor)}, without its bias{of}", run.value, run.text, sentence, run.se, run.se_text
    )


def headlines(inputs: Inputs) -> list[Headline]:
    """Return the headline numbers: label accuracy, a distance for each extractor, conditions, reconstructions.

    The first two are of the generator; without one, of the images that the tokenizer generated, if there are any.
    """
    found: list[Headline] = []
    labelled = len(inputs.catalog.classes) > 1  # where there is one class, every answer is right
    own = inputs.own.scored if inputs.own else None
    made, of = (inputs.generator, "") if inputs.generator else (own, ", of the tokenizer's own images")
    scores, n = (made.scores, made.card.n_fake) if made else ({}, 0)
    if labelled and "label_accuracy" in scores:
        fraction = scores["label_accuracy"]
        found.append(
            _share(
                f"Label accuracy{of}",
                fraction,
                n,
                "generated images are classified as the requested class, by a classifier trained on real images",
                _real_share(made) if made else "",
            )
        )
    if made is not None:
        found += [line for extractor in inputs.reference.extractors if (line := _distance(inputs, made, extractor, of))]
    embedded = inputs.decoder is None or inputs.decoder.samples.condition == "image"
    found += _conditioned(inputs.decoder, "embeddings" if embedded else "smaller images", labelled)
    found += _conditioned(inputs.text, "captions", labelled)
    card = inputs.tokenizer.card
    if psnr := value_of("psnr", inputs.tokenizer.scores):
        found.append(
            Headline(
                title("psnr"),
                psnr.value,
                psnr.text,
                f"between {card.n_fake:,} real images of the {card.split} split and their reconstructions: "
                "how much of an image survives the latents.",
                psnr.se,
                psnr.se_text,
            )
        )
    return found
