"""Scores of generators and U-Nets while they train, in the extractor's features; nothing depends on them."""

# No effect on any weight: scores the averages of a generator or of a U-Net while it trains; curves come with a training

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from darkroom.artifacts.manifest import ArtifactError, open_artifact
from darkroom.data.catalog import Catalog
from darkroom.data.draw import drawn
from darkroom.errors import DarkroomError
from darkroom.metrics.batches import Images
from darkroom.metrics.image import psnr
from darkroom.metrics.labels import label_accuracy, require_known
from darkroom.metrics.measure import distances
from darkroom.metrics.reference import Reference, build_reference
from darkroom.models.evaluators.load import Evaluator, extract, open_evaluator
from darkroom.params.training import Evaluate, EvaluateGenerator
from darkroom.training.recipe import Gather

_BLOCKS = 10

# From the numbers that batches begin with to their images, uint8 (n, C, H, W) each, in the same order.
Make = Callable[[Sequence[int]], Iterable[Images]]


def _distances(features: Tensor, reference: Reference, classes: Tensor | None = None) -> dict[str, float]:
    scores = distances(features, reference, min(_BLOCKS, len(features) // 2), classes)
    return {name: scores[name] for name in ("fd", "fd_debiased", "kid")}


class Evaluation:
    """Distances and label accuracy of images of a model in training, as the scoring stages compute them.

    settings: number of images, batch size and seed.
    """

    def __init__(
        self, settings: EvaluateGenerator, evaluator: Evaluator, reference: Reference, classes: Sequence[str]
    ) -> None:
        self.settings, self.evaluator, self.reference, self.classes = settings, evaluator, reference, list(classes)

    @classmethod
    def open(
        cls, settings: EvaluateGenerator, image_shape: Sequence[int], classes: Sequence[str]
    ) -> "Evaluation | None":
        """Return the evaluation that a section `evaluate` configures, or None.

        Args:
            settings: the section.
            image_shape: (C, H, W).
            classes: the names of the requested classes, by number.

        Raises:
            ArtifactError: the extractor does not know the classes, or another made the reference.
        """
        if not settings.every:
            return None
        evaluator = open_evaluator(Path(settings.extractor), image_shape)
        require_known(classes, evaluator.classes)
        if open_artifact(Path(settings.reference), "reference")["extractor"] != evaluator.fingerprint:
            raise ArtifactError(
                f"{settings.reference} was made with another extractor than the one in {settings.extractor}: run "
                "`dvc repro reference_stats`."
            )
        reference = Reference.load(Path(settings.reference), "in_domain", evaluator.sha256)
        return cls(settings, evaluator, reference, classes)

    def scores(
        self, make: Make, numbers: NDArray[np.int64] | None, device: torch.device, rank: int, count: int, gather: Gather
    ) -> dict[str, float]:
        """Return `fd`, `fd_debiased`, `kid` and, for images with a requested class, `label_accuracy`.

        Process `rank` of `count` generates its part of the images, in whole consecutive batches, and all processes
        get the scores.

        Args:
            make: generates batches of `settings.batch` images, the last one cut to `settings.images`.
            numbers: class number of each image, (`settings.images`,); None: no classes.
            device: where the extractor runs.
            rank: of this process.
            count: number of processes.
            gather: joins their rows.
        """
        images, batch = self.settings.images, self.settings.batch
        mine = np.array_split(np.arange(0, images, batch), count)[rank].tolist()
        features = extract(self.evaluator.network, make(mine), batch, device) if mine else torch.zeros(0)
        features = gather(features)
        classes = None if numbers is None else torch.from_numpy(numbers)
        scores = _distances(features, self.reference, classes)
        if numbers is not None:
            labels = [self.classes[number] for number in numbers.tolist()]
            scores["label_accuracy"] = label_accuracy(self.evaluator.network, features, labels, self.evaluator.classes)
        return scores


_LEAST = 4  # images: two blocks of two
_REAL = 2000  # images of the reference, at most

# From rows to images at the size of the U-Net, uint8 (N, C, S, S).
Real = Callable[[Sequence[int]], Tensor]
# From rows of the validation split to images from their conditions, and the originals.
Generate = Callable[[Sequence[int]], tuple[Tensor, Tensor]]


class UNetEvaluation:
    """Distances between images from one U-Net, under true conditions, and real images of its size.

    An up-sampler enlarges real images, so its scores do not depend on the U-Net before it; `score_decoder` scores the
    cascade. The extractor sees images of `ingest.image_size`; those of a smaller U-Net are enlarged by whole pixels,
    both real and generated ones.
    """

    def __init__(self, settings: Evaluate, evaluator: Evaluator, size: int, device: torch.device) -> None:
        self.settings, self.evaluator, self.size, self.device = settings, evaluator, size, device
        self._real: Reference | None = None

    @classmethod
    def open(
        cls, settings: Evaluate, catalog: Catalog, validated: int, device: torch.device
    ) -> "UNetEvaluation | None":
        """Return the evaluation that `train_decoder.evaluate` configures, or None; `validated`: images of that split.

        Raises:
            DarkroomError: too few of these images; the extractor is missing, or was trained on another image shape.
        """
        if not settings.every:
            return None
        if validated < _LEAST:
            raise DarkroomError(
                f"`train_decoder.evaluate` samples from the conditions of the validation split, which has only "
                f"{validated} images, but a covariance needs {_LEAST}: raise `ingest.splits.val`, or set "
                "`train_decoder.evaluate.every` to 0."
            )
        evaluator = open_evaluator(Path(settings.extractor), catalog.image_shape)
        return cls(settings, evaluator, catalog.image_shape[1], device)

    def scores(
        self, generate: Generate, images: int, real: Real, total: int, rank: int, count: int, gather: Gather
    ) -> dict[str, float]:
        """Return `fd`, `fd_debiased`, `kid` and `psnr`; process `rank` of `count` generates its part, and all get them.

        Args:
            generate: generates images from the conditions of rows of the validation split.
            images: images in that split; the first `settings.images` in a random order are used.
            real: reads rows of the train split.
            total: images in that split; 2,000 of them, drawn in the same way, are the reference.
            rank: rank of this process.
            count: number of processes.
            gather: joins their rows.
        """
        chosen, size = drawn(images, self.settings.images), self.settings.batch
        mine = np.array_split(np.arange(0, len(chosen), size), count)[rank].tolist()
        pairs = [generate(chosen[at : at + size]) for at in mine]
        features = gather(self._features(fake for fake, _ in pairs) if pairs else torch.zeros(0))
        ratios = [psnr(original.cpu(), fake.cpu()) for fake, original in pairs]  # not all devices have float64
        close = gather(torch.cat(ratios) if ratios else torch.zeros(0))
        if self._real is None:  # taken once
            rows = drawn(total, _REAL)
            of_real = self._features(real(rows[at : at + size]) for at in range(0, len(rows), size))
            self._real = build_reference("in_domain", "", [of_real], len(of_real), len(of_real))
        return _distances(features, self._real) | {"psnr": close.double().mean().item()}

    def _features(self, images: Iterable[Tensor]) -> Tensor:
        from darkroom.models.decoder.sample import upsampled  # of diffusers: only a U-Net's training needs it

        enlarged = (upsampled(group, self.size).cpu() for group in images)
        return extract(self.evaluator.network, enlarged, self.settings.batch, self.device)
