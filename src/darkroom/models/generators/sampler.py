"""Images from a generator at a fixed batch size, the last batch padded; and batches that survive an interruption.

STATE/batches-CODE/000000000125.npy holds the images from number 125 on, uint8 (n, C, H, W); CODE is a hash of the code
and of the device, since another device rounds sums differently. A batch depends only on its number and the
settings, so any process may make it at any time: processes share the stage's state folder.
"""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from darkroom.artifacts.atomic import write_bytes
from darkroom.artifacts.manifest import sha256_json
from darkroom.models.generators.conditions import Condition, ConditionSource, asked_classes, balanced
from darkroom.models.tokenizers.protocol import Tokenizer
from darkroom.training.state import CODE, read_entry


class Request(Protocol):
    """The number of images, their batches and their random numbers."""

    seed: int
    images: int
    batch: int


class Sampler(Protocol):
    """A generator with its weights and the decoder of its outputs.

    classes: the number of classes.
    guide: the network that guidance uses instead of the unconditional prediction, or None.
    classifier: the network whose gradient guides, or None.
    """

    classes: int
    guide: nn.Module | None
    classifier: Any

    @property
    def model(self) -> nn.Module:
        """The network, whose precision and compilation the settings choose."""
        ...

    @classmethod
    def open(cls, folder: Path, manifest: Mapping[str, Any], tokenizer: Tokenizer, weights: str) -> Self:
        """Return the sampler of a folder that `train_generator` wrote, on the CPU.

        Args:
            folder: with the weights.
            manifest: its manifest.
            tokenizer: that of the latents.
            weights: `ema` or `raw`.
        """
        ...

    def to(self, device: torch.device) -> Self:
        """Move the network to a device, and return the sampler."""
        ...

    @property
    def device(self) -> torch.device:
        """The device of the network."""
        ...

    def __call__(self, numbers: Sequence[int], condition: Any, seed: int, settings: Any) -> Tensor:
        """Return images, uint8 (N, C, H, W).

        Args:
            numbers: those of the images, (N,); the noise of image i follows from (seed, i).
            condition: that of the images, on the device; for classes their numbers, int64 (N,).
            seed: seed of all random numbers.
            settings: the kind's section of `sample_generator`.
        """
        ...


def generate(
    sampler: Sampler,
    request: Request,
    settings: Any,
    starts: Sequence[int] | None = None,
    conditions: ConditionSource | None = None,
) -> Iterator[NDArray[np.uint8]]:
    """Yield images in batches, uint8 (n, C, H, W), n at most `request.batch`.

    Image i follows from its condition and (seed, i): it is the same, bit for bit, however many images are requested,
    because the networks always see `request.batch` of them.

    Args:
        sampler: on its device.
        request: the number of images, their batches and seed.
        settings: the kind's section of `sample_generator`.
        starts: only the batches that begin with these images; None: all.
        conditions: those of the images; None: the class of the number modulo the number of classes.
    """
    conditions = conditions or asked_classes(balanced(sampler.classes))
    for start in range(0, request.images, request.batch) if starts is None else starts:
        numbers = np.arange(start, start + request.batch)  # past the last image: padding
        images = sampler(numbers.tolist(), placed(conditions, numbers, sampler.device), request.seed, settings)
        yield images[: request.images - start].cpu().numpy()


def placed(conditions: ConditionSource, numbers: NDArray[np.int64], device: torch.device) -> Condition:
    """Return the conditions of images, on a device."""
    condition = conditions.condition(numbers)
    return None if condition is None else condition.to(device)


class KeptBatches:
    """The stored batches of a request in their own folder."""

    def __init__(self, folder: Path, request: Request) -> None:
        self.folder, self._request = folder, request

    @staticmethod
    def place(state: Path, device: str = "cpu") -> Path:
        """Return the folder in a stage's state for batches of the code and device that run; others are removed.

        Args:
            state: the state folder of the stage.
            device: the device of the networks, `cpu` or the name of a GPU.
        """
        folder = state / f"batches-{sha256_json({'code': read_entry(state, CODE), 'device': device})[:16]}"
        for other in state.glob("batches-*"):
            if other != folder:
                shutil.rmtree(other)
        return folder

    def missing(self, rank: int = 0, processes: int = 1) -> list[int]:
        """Return the first image of each missing batch; with several processes, of this process's batches."""
        starts = range(0, self._request.images, self._request.batch)
        return [start for start in starts[rank::processes] if not self._path(start).is_file()]

    def keep(self, start: int, images: NDArray[np.uint8]) -> None:
        """Write a batch atomically."""
        data = BytesIO()
        np.save(data, images)
        write_bytes(self._path(start), data.getvalue())

    def __iter__(self) -> Iterator[NDArray[np.uint8]]:
        """Yield all batches in order, one at a time in memory."""
        for start in range(0, self._request.images, self._request.batch):
            yield np.load(self._path(start))

    def remove(self) -> None:
        """Remove all batches."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _path(self, start: int) -> Path:
        return self.folder / f"{start:012d}.npy"
