"""Two linear maps behind the tokenizer protocol."""

from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from darkroom.artifacts.networks import open_network, write_network
from darkroom.models.tokenizers.pixels import to_images, to_network


@dataclass(frozen=True)
class Config:
    """Channels and side of the images, pixels of a patch, channels of the latent."""

    channels: int
    size: int
    patch: int
    latent_channels: int


class PatchTokenizer(nn.Module):
    """Patches to vectors and back."""

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

    def save_pretrained(self, folder: Path) -> None:
        """Write configuration and weights."""
        folder.mkdir(parents=True, exist_ok=True)
        write_network(folder, asdict(self.config), self.state_dict())

    @classmethod
    def from_pretrained(cls, folder: Path) -> "PatchTokenizer":
        """Return what `save_pretrained` wrote."""
        return open_network(folder, lambda config: cls(Config(**config)), "tokenizer", "train_tokenizer")
