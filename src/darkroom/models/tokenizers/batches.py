"""Tokenizers over any number of images, at one compute batch.

The last batch is padded, so an image's bits do not depend on how many others were asked for with it.
"""

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from darkroom.device import fill_batch
from darkroom.models.tokenizers.protocol import Codes, Tokenizer


def padded(function: Callable[[Tensor], Tensor], values: Tensor, batch: int, device: torch.device) -> Tensor:
    """Return `function` of `values`, (N, ...), in batches of exactly `batch` rows, on the CPU."""
    results = []
    for at in range(0, len(values), batch):
        piece = values[at : at + batch]
        results.append(function(fill_batch(piece, batch).to(device))[: len(piece)].cpu())
    return torch.cat(results)


def encode_all(
    tokenizer: Tokenizer, images: Tensor, batch: int, device: torch.device
) -> tuple[NDArray[np.float32], NDArray[np.float32] | None]:
    """Return mean and logvar, float32 (N, *latent_shape), of uint8 images (N, C, H, W).

    logvar is None where the latent of an image is a point.
    """

    def both(x: Tensor) -> Tensor:
        mean, logvar = tokenizer.encode(x)
        return torch.stack([mean] if logvar is None else [mean, logvar], dim=1)

    encoded = padded(both, images, batch, device).numpy()
    return encoded[:, 0], encoded[:, 1] if encoded.shape[1] > 1 else None


def encode_codes_all(tokenizer: Codes, images: Tensor, batch: int, device: torch.device) -> NDArray[np.int64]:
    """Return the codes, int64 (N, h, w), of uint8 images (N, C, H, W)."""
    return padded(tokenizer.encode_codes, images, batch, device).numpy()


def decode_all(tokenizer: Tokenizer, latents: Tensor, batch: int, device: torch.device) -> Tensor:
    """Return uint8 images (N, C, H, W) of latents (N, *latent_shape)."""
    return padded(tokenizer.decode, latents, batch, device)


def reconstruct_all(tokenizer: Tokenizer, images: Tensor, batch: int, device: torch.device) -> Tensor:
    """Return each image as it comes back, uint8 (N, C, H, W)."""
    return padded(tokenizer.reconstruct, images, batch, device)
