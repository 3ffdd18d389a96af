"""The teacher: a small classifier whose features the perceptual losses compare. It is never an evaluator.

`train_teacher` trains it on the tokenizer's parts, by labels. It differs from the extractor in architecture, seed and
augmentation, so that a perceptual loss does not optimise the features that the scores compare.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from darkroom.artifacts.manifest import NAME, ArtifactError, open_artifact
from darkroom.artifacts.models import TEACHER
from darkroom.artifacts.networks import SavedNetwork
from darkroom.device import to_device
from darkroom.models.evaluators.extractor import class_scores
from darkroom.models.evaluators.settings import TeacherAugment
from darkroom.models.tokenizers.protocol import to_network
from darkroom.rng import random_numbers
from darkroom.training.recipe import Batch, IndexedDataset, Losses, Phase, Recipe


def _convolution(inputs: int, width: int) -> list[nn.Module]:
    return [nn.Conv2d(inputs, width, 3, padding=1, bias=False), nn.GroupNorm(math.gcd(4, width), width), nn.ReLU()]


@torch.no_grad()
def norm_lengths(norms: Sequence[nn.GroupNorm]) -> Tensor:
    """Return the norm of the features at a position after each of some group norms, float32: sqrt(Σ_c γ_c² + β_c²).

    It is their root mean square norm before the next rectifier, which halves the square on average: the output of a
    group norm has mean 0 and mean square 1, before its weight γ_c and bias β_c.
    """
    return torch.stack([(norm.weight.square() + norm.bias.square()).sum().sqrt() for norm in norms])


class Teacher(SavedNetwork):
    """A classifier after VGG (Simonyan and Zisserman, 2015, arXiv 1409.1556) with group norms and average pooling.

    Args:
        in_channels: 1, 3 or 4.
        classes: number of classes.
        channels: the width of each level; between two levels the resolution is halved.
        layers: the number of convolutions in each level.
    """

    made_by = ("teacher", "train_teacher")

    def __init__(self, in_channels: int, classes: int, channels: list[int], layers: int) -> None:
        super().__init__()
        self.config: dict[str, Any] = {
            "in_channels": in_channels,
            "classes": classes,
            "channels": list(channels),
            "layers": layers,
        }
        self.stages, inputs = nn.ModuleList(), in_channels
        for number, width in enumerate(channels):
            stage: list[nn.Module] = [nn.AvgPool2d(2)] if number else []
            for _ in range(layers):
                stage += _convolution(inputs, width)
                inputs = width
            self.stages.append(nn.Sequential(*stage))
        self.head = nn.Linear(channels[-1], classes)

    def levels(self, x: Tensor) -> list[Tensor]:
        """Return the features of each level, (N, C_l, H / 2^l, W / 2^l), of images x (N, C, H, W) in [-1, 1]."""
        features = []
        for stage in self.stages:
            x = stage(x)
            features.append(x)
        return features

    def lengths(self) -> Tensor:
        """Return the usual norm of the features at a position of each level, (levels,) float32: see `norm_lengths`."""
        return norm_lengths([stage[-2] for stage in self.stages])  # type: ignore[index]

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits, (N, classes), of images x (N, C, H, W) in [-1, 1]."""
        return self.head(self.levels(x)[-1].mean((2, 3)))


def open_teacher(folder: Path, image_shape: tuple[int, int, int]) -> Teacher:
    """Return the teacher in `folder`, in evaluation mode, for images of shape (C, H, W).

    Raises:
        ArtifactError: missing, not trained, damaged, an evaluator instead of a teacher, or trained on images of another
            shape.
    """
    if not (folder / NAME).is_file():
        raise ArtifactError(
            f"`train_tokenizer.teacher` names {folder}, which holds no teacher: use models/teacher or a copy of it."
        )
    manifest = open_artifact(folder, TEACHER, image_shape)
    if not manifest.get("trained", True):
        raise ArtifactError(f"{folder} was not trained, because {manifest['reason']}: run `dvc repro train_teacher`.")
    return Teacher.from_pretrained(folder)


def shifted(images: Tensor, down: Tensor, right: Tensor) -> Tensor:
    """Return images (N, C, H, W) shifted by `down` and `right` pixels, integers (N,); the padding repeats the edge."""
    rows = (torch.arange(images.shape[2], device=images.device) - down[:, None]).clamp(0, images.shape[2] - 1)
    columns = (torch.arange(images.shape[3], device=images.device) - right[:, None]).clamp(0, images.shape[3] - 1)
    number = torch.arange(len(images), device=images.device)[:, None, None]
    return images[number, :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)


class TeacherRecipe(Recipe):
    """L = cross-entropy of the classes.

    Args:
        augment: the augmentation of training images: shift and contrast.
        train, val: datasets with `images` and `labels`.
    """

    def __init__(
        self, model: Teacher, augment: TeacherAugment, seed: int, train: IndexedDataset, val: IndexedDataset
    ) -> None:
        self.model, self.augment, self.seed = model, augment, seed
        self.train, self.val = train, val
        self.modules: dict[str, nn.Module] = {"teacher": model}
        self.phases = (Phase("teacher", self.loss),)

    def loss(self, batch: Batch) -> Losses:
        """Return the cross-entropy and the accuracy."""
        numbers = random_numbers(self.seed, "teacher/augment", batch.positions.tolist(), 0, 4)[1]
        down, right, contrast, _ = to_device(numbers.astype(np.float32), batch.data["images"].device).T
        reach = self.augment.shift
        offsets = [(each * (2 * reach + 1)).floor().long().clamp(max=2 * reach) - reach for each in (down, right)]
        x = shifted(to_network(batch.data["images"]), *offsets)
        factor = 1 + self.augment.contrast * (2 * contrast - 1)
        scores = class_scores(self.modules["teacher"](x * factor[:, None, None, None]), batch.data["labels"])
        return {name: values.mean() for name, values in scores.items()}

    def validate(self, batch: Batch) -> dict[str, Tensor]:
        """Return cross-entropy and accuracy of each image, (N,), not augmented."""
        return class_scores(self.modules["teacher"](to_network(batch.data["images"])), batch.data["labels"])
