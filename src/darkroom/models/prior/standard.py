"""Embeddings of mean 0 and variance 1 in each element, as networks and noise assume them.

All embeddings of a CLIP lie in a narrow cone (Liang et al., 2022, "Mind the gap", arXiv 2203.02053), of a small one in
so narrow a one that what tells images apart is a hundredth of their length: it is the rest that must be scaled.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from darkroom.errors import DarkroomError

_MOST = 4096  # embeddings that tell mean and deviation


class Standard:
    """(e - mean) / std, element by element; an element that never changes is shifted and not scaled."""

    def __init__(self, mean: Sequence[float], std: Sequence[float]) -> None:
        self.mean = torch.tensor(mean, dtype=torch.float32)
        self.std = torch.tensor([each or 1.0 for each in std], dtype=torch.float32)

    @classmethod
    def of(cls, embeddings: NDArray[Any], how: Literal["standard", "scale"] = "standard") -> "Standard":
        """Return the standard of some image embeddings, (N, D), to five digits, so that all machines find the same.

        Args:
            embeddings: as stored.
            how: standard: mean and deviation of each element. scale: mean 0, and the root mean square of all elements
                for each: embeddings keep their directions, as those of Ramesh et al., 2022, do.

        Raises:
            DarkroomError: all are zero.
        """
        values = embeddings.astype(np.float64)
        if not values.any():
            raise DarkroomError("all image embeddings are zero: embed the images again (`dvc repro embed_clip`).")
        mean, std = values.mean(axis=0), values.std(axis=0)
        if how == "scale":
            mean, std = np.zeros_like(mean), np.full_like(std, np.sqrt((values**2).mean()))
        return cls(*([float(f"{each:.5g}") for each in found] for found in (mean, std)))

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> "Standard":
        """Return what a manifest holds."""
        return cls(facts["embedding_mean"], facts["embedding_std"])

    def facts(self) -> dict[str, Any]:
        """Return what a manifest holds; JSON keeps a float32 exactly."""
        return {"embedding_mean": self.mean.tolist(), "embedding_std": self.std.tolist()}

    def __call__(self, embeddings: Tensor) -> Tensor:
        """Return embeddings (N, D) of any floating type, standardised, float32."""
        return (embeddings.float() - self.mean.to(embeddings.device)) / self.std.to(embeddings.device)


def chosen_rows(count: int, most: int = _MOST) -> list[int]:
    """Return `most` of so many rows, or all, evenly apart: those that tell mean and deviation."""
    return np.unique(np.linspace(0, count - 1, min(most, count)).astype(np.int64)).tolist()
