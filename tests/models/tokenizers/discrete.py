"""A small discrete tokenizer that follows the protocols: what comes after any tokenizer is tested with it."""

import json
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from darkroom.artifacts.manifest import file_hashes, write_manifest
from darkroom.models.tokenizers.protocol import to_images, to_network

SIZE = 7  # codes


class Patches(nn.Module):
    """A latent is the mean of 2 x 2 pixels of an RGB image; a code is the nearest of a few colours."""

    def __init__(self, side: int, size: int = SIZE) -> None:
        super().__init__()
        self.side = side
        colours = np.random.default_rng(0).uniform(-0.6, 0.6, (size, 3)).astype(np.float32)
        self.colours = nn.Parameter(torch.from_numpy(colours))

    @property
    def latent_shape(self) -> tuple[int, int, int]:
        return 3, self.side // 2, self.side // 2

    @property
    def codebook_size(self) -> int:
        return len(self.colours)

    @property
    def codebook(self) -> Tensor:
        return self.colours

    def _nearest(self, latents: Tensor) -> Tensor:
        return torch.cdist(latents.permute(0, 2, 3, 1).flatten(1, 2), self.colours[None]).argmin(-1)

    @torch.no_grad()
    def encode(self, images: Tensor) -> tuple[Tensor, None]:
        return functional.avg_pool2d(to_network(images), 2), None

    @torch.no_grad()
    def encode_codes(self, images: Tensor) -> Tensor:
        return self._nearest(self.encode(images)[0]).view(len(images), *self.latent_shape[1:])

    @torch.no_grad()
    def decode_codes(self, codes: Tensor) -> Tensor:
        return to_images(functional.interpolate(self.colours[codes].permute(0, 3, 1, 2), scale_factor=2))

    def decode(self, latents: Tensor) -> Tensor:
        return self.decode_codes(self._nearest(latents).view(len(latents), *self.latent_shape[1:]))

    def reconstruct(self, images: Tensor) -> Tensor:
        return self.decode_codes(self.encode_codes(images))

    def save_pretrained(self, folder: Path) -> None:
        metadata = {"side": self.side, "size": len(self.colours)}
        (folder / "config.json").write_text(json.dumps(metadata))

    @classmethod
    def from_pretrained(cls, folder: Path) -> "Patches":
        return cls(**json.loads((folder / "config.json").read_text()))


def write_tokenizer(model: Patches, folder: Path = Path("models/tokenizer")) -> None:
    """Write the tokenizer as `train_tokenizer` does, under the kind `patches`."""
    folder.mkdir(parents=True)
    model.save_pretrained(folder)
    shape = [3, model.side, model.side]
    write_manifest(folder, "tokenizer", tokenizer_kind="patches", image_shape=shape, files=file_hashes(folder))
