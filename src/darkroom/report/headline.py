"""The headline numbers of the page, each with its error and one sentence."""

from collections.abc import Iterator
from dataclasses import dataclass

from darkroom.metrics.sample_scores import ENOUGH
from darkroom.metrics.score import wilson
from darkroom.report.inputs import Inputs
from darkroom.report.numbers import Number, fixed, percent
from darkroom.report.scores import Scored, debiased, distance_beside_real, distance_title, title, value_of


@dataclass(frozen=True)
class Headline:
    """A number with its title and an explanation."""

    title: str
    number: Number
    sentence: str


def _fraction(title: str, scored: Scored, score: str, says: str, more: str = "") -> Headline:
    fraction, n = scored.scores[score], scored.card.n_fake
    low, high = wilson(fraction, n)
    sentence = f"of {n:,} {says} (95% interval {fixed(100 * low, 1)} to {percent(high)}).{more}"
    return Headline(title, Number(fraction, percent(fraction)), sentence)


def _label_accuracy(title: str, scored: Scored, says: str) -> Headline:
    """Return a label accuracy, next to that of held-out real images of the same classes and of a constant answer."""
    real, more = scored.card.baselines.label_accuracy, ""
    if real is not None and real.held_out is not None:
        more = (
            f" Of held-out real images it recognises {percent(real.held_out)}; a constant answer would be right for "
            f"{percent(real.constant)}."
        )
    return _fraction(title, scored, "label_accuracy", says, more)


def _distance(inputs: Inputs, scored: Scored, extractor: str, of: str) -> Headline | None:
    """Return the distance of an extractor: from held-out images if there are enough, so copies are not rewarded."""
    reference, baselines = inputs.reference, scored.card.baselines
    name, run, real = distance_beside_real(scored.scores, baselines.model_dump(), extractor)
    if unseen := name != debiased(extractor):
        splits, floor = (reference.held_out, reference.split), baselines.train.get(extractor, {})
    else:
        splits, floor = (reference.split, reference.held_out), baselines.held_out.get(extractor, {})
    if run is None:
        return None
    sentence = (
        f"how far the generated images lie from the real ones of the {splits[0]} split"
        f"{', which no training saw' * unseen}; less is better."
    )
    if real is not None:
        as_many = f" {floor['n']:,.0f} real images of the {splits[1]} split, of the same classes, score"
        sentence += f"{as_many} {real.text} ± {real.se_text}."
    facts = reference.extractors[extractor]
    needed, count = ENOUGH * facts.dim, facts.held_out["n"]
    if not unseen and count < needed:
        sentence += (
            f" The {reference.held_out} split ({count:,.0f} images; {needed:,} are needed) is too small "
            "to be the reference, so copies of training images lower this distance: see Memorisation."
        )
    return Headline(f"{distance_title(extractor)}, without its bias{of}", run, sentence)


def headlines(inputs: Inputs) -> Iterator[Headline]:
    """Yield the headline numbers: label accuracy, a distance for each extractor, conditions, reconstructions.

    The first two are of the generator; without a generator, of the images that the tokenizer generated, if any.
    """
    labelled = len(inputs.catalog.classes) > 1  # with one class, every answer is right
    scored, of = inputs.generator, ""
    if scored is None and inputs.own is not None:
        scored, of = inputs.own.scored, ", of the tokenizer's own images"
    if scored is not None:
        if labelled and "label_accuracy" in scored.scores:
            says = "generated images are classified as the requested class, by a classifier trained on real images"
            yield _label_accuracy(f"Label accuracy{of}", scored, says)
        yield from filter(None, (_distance(inputs, scored, name, of) for name in inputs.reference.extractors))
    embedded = inputs.decoder is None or inputs.decoder.samples.condition == "image"
    conditioned = {"embeddings" if embedded else "smaller images": inputs.decoder, "captions": inputs.text}
    for of, each in conditioned.items():
        if each is not None and "colour_and_form" in each.scored.scores:
            says = f"images made of {of} show things of the right colour and form, to a network that reads such images"
            yield _fraction(f"Colour and form, of {of}", each.scored, "colour_and_form", says)
        elif each is not None and labelled and "label_accuracy" in each.scored.scores:
            says = f"images made of {of} are classified as the class of the original image, by the same classifier"
            yield _label_accuracy(f"Label accuracy, of {of}", each.scored, says)
    card = inputs.tokenizer.card
    if psnr := value_of("psnr", inputs.tokenizer.scores):
        says = f"between {card.n_fake:,} real images of the {card.split} split and their reconstructions: "
        yield Headline(title("psnr"), psnr, f"{says}how much of an image survives the latents.")
