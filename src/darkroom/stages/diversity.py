"""What the stages that score generated images do to measure their diversity, beside that of held-out images."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from darkroom.data.catalog import load_catalog
from darkroom.data.reader import ImageShards
from darkroom.metrics.diversity import SEED, Labels, Pairs, alike_pairs, classes_of, distances_of, pairs
from darkroom.metrics.image import Measure
from darkroom.metrics.measure import Further, Samples
from darkroom.metrics.sample_scores import DIVERSITY, listed
from darkroom.metrics.uncertainty import mean_and_error, weighted_mean_and_error
from darkroom.models.evaluators.pairs import in_domain_measure, perceptual_measure
from darkroom.models.generators.sample_settings import ScoreGenerator
from darkroom.terminal.terminal import with_progress

OWN, LPIPS = "diversity", "lpips_diversity"


class Vgg16(NamedTuple):
    """A file with torchvision's weights of VGG16, or `data/none`, and the key of params.yaml that names it."""

    weights: Path
    key: str


@dataclass(frozen=True)
class Diversity:
    """Measures how different samples of one class are, and held-out images of the same classes.

    made: the samples.
    settings: of the stage that scores them; with 0 `diversity.pairs` there is no score.
    lpips: for LPIPS too; None: without.
    held_out: the split of real images that no training saw.
    """

    made: ImageShards
    settings: ScoreGenerator
    lpips: Vgg16 | None
    held_out: str
    scores, needs = DIVERSITY, ("classifier",)

    def measure(self, samples: Samples, reference: object) -> Further:
        """Return `diversity` and `lpips_diversity` with their errors, and those of real images as a baseline."""
        if not (most := self.settings.diversity.pairs):
            return Further()
        made, real = self.made, ImageShards.open_parts(list(load_catalog().parts), self.held_out)
        labels, of_real = _labels(made, real)
        chosen = pairs(labels, most)
        if not len(chosen):
            return Further(notes=[f"{OWN} is left out: no two samples are of one class"])
        classes, device = classes_of(labels, chosen), samples.device or torch.device("cpu")
        others, weights = alike_pairs(of_real, classes)
        measures = {OWN: in_domain_measure(samples.classifier, device)}
        protocol: dict[str, Any] = {"diversity": {"pairs": len(chosen), "pairs_held_out": len(others), "seed": SEED}}
        if self.lpips is not None:
            lpips = perceptual_measure(self.lpips.weights, made.image_shape, self.lpips.key, device)
            measures[LPIPS], protocol["lpips"] = lpips
        scores: dict[str, float] = {}
        baseline: dict[str, float] = {"n": len(others)}
        # Classes of the samples of which no two held-out images are.
        without = set(classes) - set(classes_of(of_real, others))
        kept = torch.tensor([name not in without for name in classes])
        notes: list[str] = []
        for name, measure in measures.items():
            values = _values(measure, made, chosen, name)
            scores |= mean_and_error(name, values.tolist())
            if len(others):
                baseline |= weighted_mean_and_error(name, _values(measure, real, others, f"{name}, real"), weights)
            if without:
                notes.append(_of_others(name, sorted(map(str, without)), self.held_out, values[kept]))
        return Further(scores, protocol, notes, {"diversity": baseline} if len(others) else {})


def _labels(made: ImageShards, real: ImageShards) -> tuple[Labels, Labels]:
    """Return the classes of both; where a sample was asked to be of no class, none for all: any two are a pair."""
    labels = made.labels
    if any(label is None for label in labels):
        return [None] * len(made), [None] * len(real)
    return labels, real.labels


def _values(measure: Measure, images: ImageShards, chosen: Pairs, what: str) -> Tensor:
    def read(rows: Sequence[int]) -> Any:
        return images.__getitems__(rows)

    return torch.cat(list(with_progress(distances_of(measure, read, chosen), len(chosen), what, "pairs")))


def _of_others(name: str, without: Sequence[str], split: str, values: Tensor) -> str:
    """Return a note on classes of which no two held-out images are."""
    if not len(values):
        return f"{name} stands alone: no two images of the split {split} are of a class of the samples"
    found = mean_and_error(name, values.tolist())
    return (
        f"{name}: no two images of the split {split} are of {listed(without)}, so that of real images is of the other "
        f"classes, in which the samples have {found[name]:.4g} ± {found[f'{name}_se']:.2g}"
    )
