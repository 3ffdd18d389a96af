"""The teacher: a small classifier whose features the perceptual losses compare. It is never an evaluator.

`train_teacher` trains it on the parts that the tokenizer is trained on. It differs from the extractor in architecture,
seed and augmentation, so that a perceptual loss does not optimise the features that the scores compare.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from darkroom.artifacts.manifest import NAME, ArtifactError, open_artifact
from darkroom.artifacts.models import TEACHER
from darkroom.artifacts.networks import SavedNetwork
from darkroom.errors import DarkroomError


def _convolution(inputs: int, width: int) -> list[nn.Module]:
    return [nn.Conv2d(inputs, width, 3, padding=1, bias=False), nn.GroupNorm(math.gcd(4, width), width), nn.ReLU()]


@torch.no_grad()
def norm_lengths(norms: Sequence[nn.GroupNorm]) -> Tensor:
    """Return the norm of the features at a position after each of some group norms, float32: sqrt(Σ_c γ_c² + β_c²).

    It is their root mean square norm before the rectifier behind it, which halves the square on average: the output of
    a group norm has mean 0 and mean square 1, before its weight γ_c and bias β_c.
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
        if in_channels not in (1, 3, 4):
            raise DarkroomError(f"the teacher takes images of 1, 3 or 4 channels, not {in_channels}.")
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
        found = []
        for stage in self.stages:
            x = stage(x)
            found.append(x)
        return found

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
            f"`train_tokenizer.teacher` in params.yaml names {folder}, which holds no teacher: name models/teacher, "
            "which train_teacher makes, or a copy of it."
        )
    manifest = open_artifact(folder, TEACHER)
    if not manifest.get("trained", True):
        raise ArtifactError(
            f"{folder} holds a teacher that was not trained, because {manifest['reason']}: train it "
            "where a loss needs it (`dvc repro train_teacher`)."
        )
    if manifest["image_shape"] != list(image_shape):
        raise ArtifactError(
            f"{folder} was trained on images of shape {manifest['image_shape']}, and these are {list(image_shape)}: "
            "train it on them (`dvc repro train_teacher`)."
        )
    return Teacher.from_pretrained(folder)
