"""Scores of embeddings of images and texts: retrieval in both directions, and zero-shot classification.

Radford et al., "Learning transferable visual models from natural language supervision", 2021, arXiv 2103.00020,
section 3.1; recall among distinct texts, since equal ones cannot be distinguished.
"""

import math

import torch
from torch import Tensor
from torch.nn import functional

RECALLS = (1, 5)
_BLOCK = 1024  # rows compared at once
# Cosines that differ by less are equal: a matrix product rounds the same pair differently at different positions.
_TIE = 1e-12


def recalls(images: Tensor, texts: Tensor, captions: Tensor) -> dict[str, float]:
    """Return `image_to_text_r1`, `_r5`, `text_to_image_r1`, `_r5` and their standard errors.

    A tie counts as nearer, so constant embeddings find nothing. From embeddings of length 1 of images, (N, D), and of
    distinct captions, (U, D), and the place of each image's caption among them, (N,); each place occurs at least once.
    """
    images, texts = images.double(), texts.double()
    own = torch.einsum("nd,nd->n", images, texts[captions])
    blocks = list(zip(images.split(_BLOCK), captions.split(_BLOCK), strict=True))
    others = torch.cat([_nearer(some, texts, of_some) for some, of_some in blocks])
    best = torch.full((len(texts),), -math.inf, dtype=own.dtype).scatter_reduce(0, captions, own, "amax")
    strangers = torch.zeros(len(texts), dtype=torch.int64)
    for some, of_some in blocks:
        cosines = texts @ some.T  # (U, n)
        foreign = of_some != torch.arange(len(texts))[:, None]
        strangers += ((cosines >= best[:, None] - _TIE) & foreign).sum(dim=1)
    scores: dict[str, float] = {}
    for name, counts in (("image_to_text", others), ("text_to_image", strangers)):
        for recall in RECALLS:
            scores |= fraction(f"{name}_r{recall}", counts < recall)
    return scores


def _nearer(images: Tensor, texts: Tensor, captions: Tensor) -> Tensor:
    """Return the number of other texts that are at least as near to each image as its own, (n,)."""
    cosines = images @ texts.T
    own = cosines.gather(1, captions[:, None])
    return (cosines >= own - _TIE).sum(dim=1) - 1


def class_embeddings(prompts: Tensor, classes: Tensor, count: int) -> Tensor:
    """Return the embedding of each of `count` classes, of length 1, (count, D): the mean of those of its prompts.

    From embeddings of prompts of length 1, (P, D), and the class of each, (P,); each class has a prompt.
    """
    sums = torch.zeros(count, prompts.shape[1]).index_add(0, classes, prompts)
    return functional.normalize(sums, dim=1)


def zero_shot(images: Tensor, classes: Tensor, labels: Tensor) -> dict[str, float]:
    """Return `zero_shot_accuracy` and its standard error.

    From embeddings of length 1 of images, (N, D), and classes, (K, D), and the class of each image, (N,).
    """
    return fraction("zero_shot_accuracy", (images @ classes.T).argmax(dim=1) == labels)


def fraction(name: str, hits: Tensor) -> dict[str, float]:
    """Return the fraction of True, and its standard error sqrt(p (1 - p) / n)."""
    value = float(hits.double().mean())
    return {name: value, f"{name}_se": math.sqrt(value * (1 - value) / len(hits))}
