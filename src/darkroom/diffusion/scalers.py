"""Scalers: data of about unit variance, as networks and paths between data and noise assume them.

All embeddings of a CLIP lie in a narrow cone (Liang et al., 2022, "Mind the gap", arXiv 2203.02053). That of a
small CLIP is so narrow that images differ by a hundredth of their embeddings' length; this difference must be scaled.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from darkroom.device import to_device
from darkroom.errors import DarkroomError

_MOST = 4096  # embeddings for the estimates of mean and deviation


class Scaler:
    """(x - mean) / std and its inverse; constant elements, with std 0, are shifted and not scaled.

    shape: of mean and std, each a number for each of these elements.
    """

    def __init__(self, mean: Sequence[float], std: Sequence[float], shape: Sequence[int] = (-1,)) -> None:
        self.mean = torch.tensor(mean, dtype=torch.float32).reshape(*shape)
        self.std = torch.tensor([each or 1.0 for each in std], dtype=torch.float32).reshape(*shape)

    def __call__(self, values: Tensor) -> Tensor:
        """Return values (N, ...) of any floating type, scaled, float32."""
        return (values.float() - to_device(self.mean, values.device)) / to_device(self.std, values.device)

    def invert(self, values: Tensor) -> Tensor:
        """Undo the scaling of values (N, ...)."""
        return values * to_device(self.std, values.device) + to_device(self.mean, values.device)


class LatentScaler(Scaler):
    """Latents (N, C, H, W), one mean and std a channel."""

    def __init__(self, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__(mean, std, (-1, 1, 1))


class EmbeddingScaler(Scaler):
    """Embeddings (N, D), one mean and std an element."""

    @classmethod
    def of(cls, embeddings: NDArray[Any]) -> "EmbeddingScaler":
        """Return the scaler of some stored image embeddings, (N, D): mean and deviation of each element.

        Rounded to five digits, so that all machines get the same values.

        Raises:
            DarkroomError: all are zero.
        """
        values = embeddings.astype(np.float64)
        if not values.any():
            raise DarkroomError("all image embeddings are zero: embed the images again (`dvc repro embed_clip`).")
        mean, std = ([float(f"{each:.5g}") for each in array] for array in (values.mean(axis=0), values.std(axis=0)))
        return cls(mean, std)

    @classmethod
    def from_facts(cls, metadata: Mapping[str, Any]) -> "EmbeddingScaler":
        """Return the scaler that a manifest holds."""
        return cls(metadata["embedding_mean"], metadata["embedding_std"])

    def metadata(self) -> dict[str, Any]:
        """Return the entries of a manifest; JSON keeps a float32 exactly."""
        return {"embedding_mean": self.mean.tolist(), "embedding_std": self.std.tolist()}


def spaced_rows(count: int, most: int = _MOST) -> list[int]:
    """Return at most `most` of `count` rows, evenly spaced, to estimate mean and deviation from."""
    return np.unique(np.linspace(0, count - 1, min(most, count)).astype(np.int64)).tolist()
