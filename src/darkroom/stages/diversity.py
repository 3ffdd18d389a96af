"""Measure diversity: the mean perceptual distance d between samples of one class, and between held-out images.

Mean of d(xᵢ, xⱼ) over pairs i ≠ j of one class, drawn by a seed; each image is in at most one pair, so pairs are
independent. Source: Zhu et al., "Toward multimodal image-to-image translation", 2017, arXiv 1711.11586; d is LPIPS.
Neither higher nor lower is better by itself: far below real images, a model repeats itself; far above them, its images
are noisy.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from darkroom.data.catalog import load_catalog
from darkroom.data.reader import ImageShards
from darkroom.metrics.image import Measure
from darkroom.metrics.measure import Measurement, Samples
from darkroom.metrics.sample_scores import DIVERSITY, listed
from darkroom.metrics.uncertainty import mean_and_error, weighted_mean_and_error
from darkroom.models.evaluators.pairs import in_domain_measure, perceptual_measure
from darkroom.models.generators.sample_settings import ScoreGenerator
from darkroom.rng import generator
from darkroom.terminal.terminal import with_progress

SEED = 0  # of the pairs
_STEP = 32  # pairs in a forward pass

Labels = Sequence[str | None]
Pairs = NDArray[np.int64]


def pairs(labels: Labels, most: int, seed: int = SEED) -> Pairs:
    """Draw pairs (P, 2) of different images of one class, with P at most `most` and no image in two pairs.

    Images without a class (None) pair with each other. Each class has pairs in proportion to its images; if no class
    has two images, there are no pairs.
    """
    mixed = generator(seed, "diversity").permutation(len(labels))
    waiting: dict[str | None, int] = {}
    matches: list[tuple[int, int]] = []
    for image in mixed.tolist():
        if len(matches) == most:
            break
        other = waiting.pop(labels[image], None)
        if other is None:
            waiting[labels[image]] = image
        else:
            matches.append((other, image))
    return np.array(matches, dtype=np.int64).reshape(-1, 2)


def alike_pairs(labels: Labels, targets: Labels, seed: int = SEED) -> tuple[Pairs, Tensor]:
    """Draw pairs of real images with the classes of other pairs, and return them with weights.

    Takes the class of each real image, (H,), and of each of the other pairs, (P,).

    Returns:
        pairs (M, 2), for each class as many as in `targets` or as available; weights (M,) float64 of sum 1: each class
        has its weight in `targets`, and classes without a pair are left out.
    """
    quotas, taken = Counter(targets), Counter[str | None]()
    chosen = []
    for pair in pairs(labels, len(labels), seed):
        name = labels[pair[0]]
        if taken[name] < quotas[name]:
            taken[name] += 1
            chosen.append(pair)
    matches = np.array(chosen, dtype=np.int64).reshape(-1, 2)
    weights = torch.tensor([quotas[name] / taken[name] for name in classes_of(labels, matches)], dtype=torch.float64)
    return matches, weights / weights.sum()


def classes_of(labels: Labels, chosen: Pairs) -> list[str | None]:
    """Return the class of each pair."""
    return [labels[row] for row in chosen[:, 0].tolist()]


OWN, LPIPS = "diversity", "lpips_diversity"


class Vgg16(NamedTuple):
    """A file with torchvision's weights of VGG16, or `data/none`, and its key in params.yaml."""

    weights: Path
    key: str


@dataclass(frozen=True)
class Diversity:
    """Measure how much samples of one class differ, and held-out images of the same classes.

    images: the samples.
    settings: settings of the scoring stage; if `diversity.pairs` is 0, there is no score.
    lpips: weights for LPIPS; None: without LPIPS.
    held_out: the split of unseen real images.
    left_out: the rows of this split that `reference_stats` left out.
    """

    images: ImageShards
    settings: ScoreGenerator
    lpips: Vgg16 | None
    held_out: str
    left_out: Sequence[int]
    scores, needs = DIVERSITY, ("classifier",)

    def measure(self, samples: Samples, reference: object) -> Measurement:
        """Return `diversity` and `lpips_diversity` with their errors, and those of real images as a baseline."""
        if not (most := self.settings.diversity.pairs):
            return Measurement()
        generated, real = self.images, ImageShards.open_parts(list(load_catalog().parts), self.held_out)
        real.leave_out(self.left_out)
        labels, of_real = _labels(generated, real)
        chosen = pairs(labels, most)
        if not len(chosen):
            return Measurement(notes=[f"{OWN} is left out: no two samples are of one class"])
        classes, device = classes_of(labels, chosen), samples.device or torch.device("cpu")
        others, weights = alike_pairs(of_real, classes)
        measures = {OWN: in_domain_measure(samples.classifier, device)}
        protocol: dict[str, Any] = {"diversity": {"pairs": len(chosen), "pairs_held_out": len(others), "seed": SEED}}
        if self.lpips is not None:
            lpips = perceptual_measure(self.lpips.weights, generated.image_shape, self.lpips.key, device)
            measures[LPIPS], protocol["lpips"] = lpips
        scores: dict[str, float] = {}
        baseline: dict[str, float] = {"n": len(others)}
        # Classes of the samples with fewer than two held-out images.
        without = set(classes) - set(classes_of(of_real, others))
        notes = []
        if without:
            notes.append(
                f"diversity: no two images of the split {self.held_out} are of {listed(sorted(map(str, without)))}, so "
                "that of real images, if any, is of the other classes"
            )
        for name, measure in measures.items():
            scores |= mean_and_error(name, distances_of(measure, generated, chosen, name).tolist())
            if len(others):
                baseline |= weighted_mean_and_error(name, distances_of(measure, real, others, f"{name}, real"), weights)
        return Measurement(scores, protocol, notes, {"diversity": baseline} if len(others) else {})


def _labels(generated: ImageShards, real: ImageShards) -> tuple[Labels, Labels]:
    """Return the classes of both; if a sample has no class, None for all, so that any two are a pair."""
    labels = generated.labels
    if any(label is None for label in labels):
        return [None] * len(generated), [None] * len(real)
    return labels, real.labels


def distances_of(measure: Measure, images: ImageShards, chosen: Pairs, work: str) -> Tensor:
    """Return the distance d of each pair of images, (P,) float64; `work`: for the progress line."""

    def groups() -> Iterator[Tensor]:
        for first in range(0, len(chosen), _STEP):
            some = chosen[first : first + _STEP]
            one, other = (torch.from_numpy(images.__getitems__(some[:, side].tolist())) for side in (0, 1))
            yield measure(one, other)

    return torch.cat(list(with_progress(groups(), len(chosen), work, "pairs")))
