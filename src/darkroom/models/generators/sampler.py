"""Images from a generator, batch by batch: at one compute batch, the last one padded."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from darkroom.models.generators.conditions import Asked, Condition, asked_classes
from darkroom.models.generators.labels import balanced
from darkroom.models.tokenizers.protocol import Tokenizer


class Request(Protocol):
    """How many images, in which batches, from which random numbers."""

    seed: int
    images: int
    batch: int


class Sampler(Protocol):
    """A generator with its weights and what turns its outputs into images.

    classes: the number of classes.
    weaker: the network that guidance leads away from in place of the unconditional one; None: that one.
    classifier: the network whose gradient guides; None: none.

    One that goes from noise to images in steps may have `trajectory`, see `DiTSampler`.
    """

    classes: int
    weaker: nn.Module | None
    classifier: Any

    @property
    def model(self) -> nn.Module:
        """The network, whose precision and compilation the settings choose."""
        ...

    @classmethod
    def open(
        cls, folder: Path, manifest: Mapping[str, Any], tokenizer: Tokenizer, weights: str, sigma_rel: float | None
    ) -> Self:
        """Return the sampler of a folder that `train_generator` wrote, on the CPU.

        Args:
            folder: with the weights.
            manifest: its manifest.
            tokenizer: that of the latents.
            weights: `ema` or `raw`.
            sigma_rel: relative width of the average, rebuilt from the training's `ema_profiles`; None: as `weights`.
        """
        ...

    def to(self, device: torch.device) -> Self:
        """Move the network to a device, and return the sampler."""
        ...

    @property
    def device(self) -> torch.device:
        """Where the network lies."""
        ...

    def __call__(self, numbers: Sequence[int], condition: Any, seed: int, settings: Any) -> Tensor:
        """Return images, uint8 (N, C, H, W).

        Args:
            numbers: of the images, (N,); the noise of image i follows from (seed, i).
            condition: what they are asked to show, on the device: of classes their numbers, int64 (N,).
            seed: of all random numbers.
            settings: the kind's section of `sample_generator`.
        """
        ...


def generate(
    sampler: Sampler,
    request: Request,
    settings: Any,
    starts: Sequence[int] | None = None,
    asked: Asked | None = None,
) -> Iterator[NDArray[np.uint8]]:
    """Yield images in batches, uint8 (n, C, H, W), n at most `request.batch`.

    Image i has the condition that `asked` gives it, and noise that follows from (seed, i): it is the same, bit for bit,
    however many images are requested, because the networks always see `request.batch` of them.

    Args:
        sampler: on its device.
        request: how many images.
        settings: the kind's section of `sample_generator`.
        starts: the batches that begin with these images alone; None: all.
        asked: what each image is asked to show; None: the class of its number modulo the number of classes.
    """
    asked = asked or asked_classes(balanced(sampler.classes))
    for start in range(0, request.images, request.batch) if starts is None else starts:
        numbers = np.arange(start, start + request.batch)  # past the last image: padding
        images = sampler(numbers.tolist(), placed(asked, numbers, sampler.device), request.seed, settings)
        yield images[: request.images - start].cpu().numpy()


def placed(asked: Asked, numbers: NDArray[np.int64], device: torch.device) -> Condition:
    """Return what images are asked to show, on a device."""
    condition = asked.condition(numbers)
    return None if condition is None else condition.to(device)
