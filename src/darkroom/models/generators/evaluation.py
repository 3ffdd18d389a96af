"""Scores of a generator while it trains, by the network that judges: a look, which decides nothing."""

# No effect on any weight: scores the averages of train_dit while it trains; the curves of an edit come with a training

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from darkroom.artifacts.manifest import ArtifactError, open_artifact
from darkroom.data.catalog import Catalog
from darkroom.metrics.reference import Reference, distances
from darkroom.models.evaluators.labels import label_accuracy, require_known
from darkroom.models.evaluators.load import Judge, extract, open_judge
from darkroom.models.generators.dit.network import DiT
from darkroom.models.generators.dit.settings import Evaluate
from darkroom.models.generators.generate import generate
from darkroom.models.generators.normaliser import Normaliser
from darkroom.models.tokenizers.protocol import Tokenizer
from darkroom.training.recipe import Gather

_BLOCKS = 10


class Evaluation:
    """Distances and label accuracy of images that a DiT makes as it is, as `sample_dit` and `score_dit` find them."""

    def __init__(
        self,
        settings: Evaluate,
        judge: Judge,
        reference: Reference,
        tokenizer: Tokenizer,
        normaliser: Normaliser,
        classes: Sequence[str],
    ) -> None:
        self.settings, self.judge, self.reference = settings, judge, reference
        self.tokenizer, self.normaliser, self.classes = tokenizer, normaliser, list(classes)
        self.every = settings.every

    @classmethod
    def open(
        cls, settings: Evaluate, tokenizer: Tokenizer, normaliser: Normaliser, catalog: Catalog
    ) -> "Evaluation | None":
        """Return the evaluation that `train_dit.evaluate` asks for, or None.

        Raises:
            ArtifactError: the extractor does not know the classes, or another made the reference.
        """
        if not settings.every:
            return None
        judge = open_judge(Path(settings.extractor), catalog.image_shape)
        require_known(catalog.classes, judge.classes)
        if open_artifact(Path(settings.reference), "reference")["extractor"] != judge.identity:
            raise ArtifactError(
                f"{settings.reference} was made with another extractor than {settings.extractor} holds: make it again "
                "(`dvc repro reference_stats`)."
            )
        reference = Reference.load(Path(settings.reference), "in_domain", judge.sha256)
        return cls(settings, judge, reference, tokenizer, normaliser, catalog.classes)

    def scores(self, model: DiT, rank: int, count: int, gather: Gather) -> dict[str, float]:
        """Return `fd`, `fd_debiased`, `kid` and `label_accuracy` of the images of `settings`.

        Process `rank` of `count` makes its share of them, whole batches one after the other, and all get the scores.
        """
        device = next(model.parameters()).device
        starts = range(0, self.settings.images, self.settings.batch)
        mine = [starts[int(number)] for number in np.array_split(np.arange(len(starts)), count)[rank]]
        made = generate(model, self.tokenizer, self.normaliser, self.settings, device, mine)
        batches = list(made)
        features = extract(self.judge.network, batches, self.settings.batch, device) if batches else torch.zeros(0)
        features = gather(features)
        labels = [self.classes[number % len(self.classes)] for number in range(self.settings.images)]
        found = distances(features, self.reference, min(_BLOCKS, len(features) // 2))
        accuracy = label_accuracy(self.judge.network, features, labels, self.judge.classes)
        return {name: found[name] for name in ("fd", "fd_debiased", "kid")} | {"label_accuracy": accuracy}
