"""Scores of a generator while it trains, in the features of the extractor; nothing depends on them."""

# No effect on any weight: scores the averages of a generator while it trains; curves come with a training

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from darkroom.artifacts.manifest import ArtifactError, open_artifact
from darkroom.data.catalog import Catalog
from darkroom.metrics.labels import label_accuracy, require_known
from darkroom.metrics.reference import Reference, distances
from darkroom.models.evaluators.load import Evaluator, extract, open_evaluator
from darkroom.models.generators.conditions import Asked, asked_classes
from darkroom.models.generators.labels import by_frequency
from darkroom.models.generators.sampler import Sampler, generate
from darkroom.models.generators.settings import EvaluateGenerator
from darkroom.training.recipe import Gather

_BLOCKS = 10


class Evaluation:
    """Distances and label accuracy of images of a generator in training, as `score_generator` computes them."""

    def __init__(
        self,
        settings: EvaluateGenerator,
        judge: Evaluator,
        reference: Reference,
        classes: Sequence[str],
        counts: Sequence[int],
    ) -> None:
        self.settings, self.judge, self.reference = settings, judge, reference
        self.classes, self.counts = list(classes), list(counts)
        self.every = settings.every

    @classmethod
    def open(cls, settings: EvaluateGenerator, catalog: Catalog) -> "Evaluation | None":
        """Return the evaluation that `train_generator.evaluate` asks for, or None.

        Raises:
            ArtifactError: the extractor does not know the classes, or another made the reference.
        """
        if not settings.every:
            return None
        judge = open_evaluator(Path(settings.extractor), catalog.image_shape)
        require_known(catalog.classes, judge.classes)
        if open_artifact(Path(settings.reference), "reference")["extractor"] != judge.fingerprint:
            raise ArtifactError(
                f"{settings.reference} was made with another extractor than {settings.extractor} holds: make it again "
                "(`dvc repro reference_stats`)."
            )
        reference = Reference.load(Path(settings.reference), "in_domain", judge.sha256)
        return cls(settings, judge, reference, catalog.classes, list(catalog.counts["train"].values()))

    def scores(
        self, sampler: Sampler, sampling: Any, asked: Asked, rank: int, count: int, gather: Gather
    ) -> dict[str, float]:
        """Return `fd`, `fd_debiased`, `kid` and `label_accuracy` of images that are sampled as `sampling` says.

        Classes are as frequent as in the train split, and so as in the reference. Images that are of no class have no
        label accuracy.
        Process `rank` of `count` makes its share of them, whole batches one after the other, and all get the scores.
        """
        if asked.label is not None and asked.caption is None and any(self.counts):
            asked = asked_classes(by_frequency(self.counts))
        starts = range(0, self.settings.images, self.settings.batch)
        mine = [starts[int(number)] for number in np.array_split(np.arange(len(starts)), count)[rank]]
        batches = list(generate(sampler, self.settings, sampling, mine, asked))
        network, batch = self.judge.network, self.settings.batch
        features = extract(network, batches, batch, sampler.device) if batches else torch.zeros(0)
        features = gather(features)
        numbers = None
        if asked.label is not None:
            numbers = torch.from_numpy(asked.label(np.arange(self.settings.images)))
        found = distances(features, self.reference, min(_BLOCKS, len(features) // 2), numbers)
        scores = {name: found[name] for name in ("fd", "fd_debiased", "kid")}
        if numbers is None:
            return scores
        labels = [self.classes[number] for number in numbers.tolist()]
        return scores | {"label_accuracy": label_accuracy(self.judge.network, features, labels, self.judge.classes)}
