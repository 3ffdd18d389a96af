"""Scores of what generates, while it trains, in the features of the extractor; nothing depends on them."""

# No effect on any weight: scores the averages of a generator while it trains; curves come with a training

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from darkroom.artifacts.manifest import ArtifactError, open_artifact
from darkroom.metrics.batches import Images
from darkroom.metrics.labels import label_accuracy, require_known
from darkroom.metrics.matching import Distribution
from darkroom.metrics.reference import Reference, distances
from darkroom.models.evaluators.load import Evaluator, extract, open_evaluator
from darkroom.params.evaluate import EvaluateGenerator
from darkroom.training.recipe import Gather

_BLOCKS = 10

# From the numbers that batches begin with to their images, uint8 (n, C, H, W) each, in the same order.
Make = Callable[[Sequence[int]], Iterable[Images]]


class Evaluation:
    """Distances and label accuracy of images of a model in training, as the stages that score samples compute them.

    settings: how many images, in which batches, from which seed.
    """

    def __init__(
        self, settings: EvaluateGenerator, judge: Evaluator, reference: Reference, classes: Sequence[str]
    ) -> None:
        self.settings, self.judge, self.reference, self.classes = settings, judge, reference, list(classes)

    @classmethod
    def open(
        cls,
        settings: EvaluateGenerator,
        image_shape: Sequence[int],
        classes: Sequence[str],
        distribution: Distribution,
    ) -> "Evaluation | None":
        """Return the evaluation that a section `evaluate` asks for, or None.

        Args:
            settings: the section.
            image_shape: (C, H, W).
            classes: the names of the classes that images are asked to show, by number.
            distribution: of these classes among the images; the reference is weighted to it.

        Raises:
            ArtifactError: the extractor does not know the classes, or another made the reference.
        """
        if not settings.every:
            return None
        judge = open_evaluator(Path(settings.extractor), image_shape)
        require_known(classes, judge.classes)
        if open_artifact(Path(settings.reference), "reference")["extractor"] != judge.fingerprint:
            raise ArtifactError(
                f"{settings.reference} was made with another extractor than {settings.extractor} holds: make it again "
                "(`dvc repro reference_stats`)."
            )
        reference = Reference.load(Path(settings.reference), "in_domain", judge.sha256)
        return cls(settings, judge, reference.matched(distribution), classes)

    def scores(
        self,
        make: Make,
        numbers: NDArray[np.int64] | None,
        device: torch.device,
        rank: int,
        count: int,
        gather: Gather,
    ) -> dict[str, float]:
        """Return `fd`, `fd_debiased`, `kid` and, of images that were asked to show a class, `label_accuracy`.

        Process `rank` of `count` makes its share of the images, whole batches one after the other, and all get the
        scores.

        Args:
            make: makes batches of `settings.batch` images, the last one cut to `settings.images`.
            numbers: class number of each image, (`settings.images`,); None: they are of no class.
            device: where the extractor runs.
            rank: of this process.
            count: of processes.
            gather: puts their rows together.
        """
        images, batch = self.settings.images, self.settings.batch
        starts = range(0, images, batch)
        mine = [starts[int(number)] for number in np.array_split(np.arange(len(starts)), count)[rank]]
        features = extract(self.judge.network, make(mine), batch, device) if mine else torch.zeros(0)
        features = gather(features)
        classes = None if numbers is None else torch.from_numpy(numbers)
        found = distances(features, self.reference, min(_BLOCKS, len(features) // 2), classes)
        scores = {name: found[name] for name in ("fd", "fd_debiased", "kid")}
        if numbers is None:
            return scores
        labels = [self.classes[number] for number in numbers.tolist()]
        return scores | {"label_accuracy": label_accuracy(self.judge.network, features, labels, self.judge.classes)}
