"""What both are given, and how far apart they are."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from darkroom.data.colours import premultiplied
from darkroom.training.recipe import Batch


class Images:
    """Images of noise, by row number."""

    def __init__(self, count: int, channels: int, size: int) -> None:
        drawn = torch.Generator().manual_seed(0)
        self.images = torch.randint(0, 256, (count, channels, size, size), dtype=torch.uint8, generator=drawn)

    def __len__(self) -> int:
        return len(self.images)

    def __getitems__(self, rows: Sequence[int], positions: Any = None) -> dict[str, Any]:
        return {"images": self.images[list(rows)].numpy()}

    def keys(self, rows: Sequence[int]) -> list[str]:
        return [str(row) for row in rows]

    @property
    def batch(self) -> Batch:
        """All of them, as the first update sees them."""
        return Batch(np.arange(len(self)), {"images": self.images})

    @property
    def unit(self) -> Tensor:
        """All of them in [0, 1], as the originals are given them; RGBA is premultiplied."""
        return premultiplied(self.images) / 255


def apart(ours: Tensor, theirs: Tensor) -> float:
    """Return the largest difference, relative to the largest number of theirs; infinity if one is not finite."""
    assert ours.shape == theirs.shape, (ours.shape, theirs.shape)
    a, b = ours.detach().double(), theirs.detach().double()
    largest, difference = b.abs().max(), (a - b).abs().max()
    if not (largest.isfinite() and difference.isfinite()):
        return float("inf")
    return float(difference / largest) if largest else float(difference)


def copy(pairs: Iterable[tuple[nn.Module, nn.Module]]) -> None:
    """Give theirs the weights of ours, by pairs of layers; one may be a 1x1 convolution and the other a linear map."""
    with torch.no_grad():
        for ours, theirs in pairs:
            for (name, given), (other, taken) in zip(ours.named_parameters(), theirs.named_parameters(), strict=True):
                assert name == other and given.numel() == taken.numel(), (name, other, given.shape, taken.shape)
                taken.copy_(given.reshape(taken.shape))


def gradients(pairs: Iterable[tuple[nn.Module, nn.Module]]) -> float:
    """Return how far the gradients of pairs of layers are apart, of the parameter where they are farthest."""
    found = []
    for ours, theirs in pairs:
        for given, taken in zip(ours.parameters(), theirs.parameters(), strict=True):
            assert given.grad is not None and taken.grad is not None
            found.append(apart(given.grad.reshape(taken.shape), taken.grad))
    return max(found)
