"""What the rest of the DAG knows of a tokenizer."""

from pathlib import Path
from typing import Protocol, Self

import torch
from torch import Tensor

KIND = "tokenizer"


class Tokenizer(Protocol):
    """Maps images to a distribution of latents, and latents to images."""

    @property
    def latent_shape(self) -> tuple[int, int, int]:
        """Channels, height and width of a latent."""
        ...

    def encode(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and logvar, each (N, *latent_shape), float32, of uint8 images (N, C, H, W)."""
        ...

    def decode(self, latents: Tensor) -> Tensor:
        """Return uint8 images (N, C, H, W) from latents (N, *latent_shape)."""
        ...

    def to(self, device: torch.device) -> Self:
        """Move to a device."""
        ...

    def save_pretrained(self, folder: Path) -> None:
        """Write the configuration and the weights."""
        ...
