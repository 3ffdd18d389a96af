"""Two linear maps behind the tokenizer protocol."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from darkroom.artifacts.networks import SavedNetwork
from darkroom.models.tokenizers.protocol import to_images, to_network


@dataclass(frozen=True)
class Config:
    """Channels and side of the images, pixels of a patch, channels of the latent."""

    channels: int
    size: int
    patch: int
    latent_channels: int


class PatchTokenizer(SavedNetwork):
    """Patches to vectors and back."""

    made_by = ("tokenizer", "train_tokenizer")

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.down = nn.Conv2d(config.channels, config.latent_channels, config.patch, stride=config.patch)
        self.up = nn.ConvTranspose2d(config.latent_channels, config.channels, config.patch, stride=config.patch)

    @property
    def latent_shape(self) -> tuple[int, int, int]:
        """Channels, height and width of a latent."""
        side = self.config.size // self.config.patch
        return self.config.latent_channels, side, side

    def forward(self, x: Tensor) -> Tensor:
        """Return what comes back of network images (N, C, H, W)."""
        return self.up(self.down(x))

    @torch.no_grad()
    def encode(self, images: Tensor) -> tuple[Tensor, None]:
        """Return the latents (N, *latent_shape) of uint8 images (N, C, H, W); they are points."""
        return self.down(to_network(images)), None

    @torch.no_grad()
    def decode(self, latents: Tensor) -> Tensor:
        """Return uint8 images (N, C, H, W)."""
        return to_images(self.up(latents))

    def reconstruct(self, images: Tensor) -> Tensor:
        """Return uint8 images as they come back."""
        return self.decode(self.encode(images)[0])

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "PatchTokenizer":
        """Return an untrained tokenizer."""
        return cls(Config(**config))
