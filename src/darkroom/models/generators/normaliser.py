"""Latents of about unit variance, as the paths between data and noise assume them."""

from collections.abc import Sequence

import torch
from torch import Tensor


class Normaliser:
    """Latents to about unit variance and back: (z - mean) / std, one mean and std a channel.

    A channel that never changes, with std 0, is shifted and not scaled.
    """

    def __init__(self, mean: Sequence[float], std: Sequence[float]) -> None:
        self.mean = torch.tensor(mean, dtype=torch.float32)[:, None, None]
        self.std = torch.tensor([each or 1.0 for each in std], dtype=torch.float32)[:, None, None]

    def __call__(self, latents: Tensor) -> Tensor:
        """Return (N, C, H, W) normalised."""
        return (latents - self.mean.to(latents.device)) / self.std.to(latents.device)

    def invert(self, latents: Tensor) -> Tensor:
        """Return (N, C, H, W) as the tokenizer made them."""
        return latents * self.std.to(latents.device) + self.mean.to(latents.device)
