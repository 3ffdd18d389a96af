"""What the rest of the DAG knows of a tokenizer."""

from pathlib import Path
from typing import Protocol, Self, runtime_checkable

import torch
from torch import Tensor

KIND = "tokenizer"


class Tokenizer(Protocol):
    """Maps images to continuous latents, and latents to images.

    A discrete tokenizer, see `Codes`, has continuous latents too: what its encoder says before it is quantised. Its
    `decode` quantises them first, where its decoder was trained on nothing else (Rombach et al., 2022, "VQ-reg").

    A tokenizer knows no statistics of its latents: count, sum and sum of squares of each channel over the train split
    stand in the manifest of the latents, which `data/latent_writer.py` writes. `codebook_size` belongs to `Codes`.
    """

    @property
    def latent_shape(self) -> tuple[int, int, int]:
        """Channels, height and width of a latent."""
        ...

    def encode(self, images: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return mean and logvar, each (N, *latent_shape), float32, of uint8 images (N, C, H, W).

        logvar is None where the latent of an image is a point and no distribution.

        Raises:
            DarkroomError: images of another shape (C, H, W) than those that the tokenizer was made for.
        """
        ...

    def decode(self, latents: Tensor) -> Tensor:
        """Return uint8 images (N, C, H, W) from latents (N, *latent_shape)."""
        ...

    def reconstruct(self, images: Tensor) -> Tensor:
        """Return uint8 images (N, C, H, W) as they come back: by way of the codes where there are any, or the mean."""
        ...

    def to(self, device: torch.device) -> Self:
        """Move to a device."""
        ...

    def save_pretrained(self, folder: Path) -> None:
        """Write the configuration and the weights."""
        ...

    @classmethod
    def from_pretrained(cls, folder: Path) -> Self:
        """Return the tokenizer that `save_pretrained` wrote, in evaluation mode."""
        ...


@runtime_checkable
class Codes(Protocol):
    """What a discrete tokenizer has besides: a code for each place of the latent."""

    @property
    def codebook_size(self) -> int:
        """K, the number of codes."""
        ...

    @property
    def codebook(self) -> Tensor:
        """The vector that each code stands for, (K, C) float32, K the size of the codebook."""
        ...

    def encode_codes(self, images: Tensor) -> Tensor:
        """Return the codes, int64 (N, h, w) from 0 to K - 1, of uint8 images (N, C, H, W).

        Raises:
            DarkroomError: see `Tokenizer.encode`.
        """
        ...

    def decode_codes(self, codes: Tensor) -> Tensor:
        """Return uint8 images (N, C, H, W) from codes (N, h, w)."""
        ...
