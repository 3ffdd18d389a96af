"""Pixels in [-1, 1] as latents, for generators of pixels (Li and He, "JiT", 2025, arXiv 2511.13720)."""

from dataclasses import dataclass

from torch import Tensor

from darkroom.artifacts.networks import SavedNetwork
from darkroom.models.tokenizers.protocol import require_shape, to_images, to_network
from darkroom.models.tokenizers.sections import Identity


@dataclass(frozen=True)
class Config:
    """Channels and side of the images."""

    channels: int
    size: int


class IdentityTokenizer(SavedNetwork):
    """The image itself behind the tokenizer protocol, without parameters; decoding restores the exact image."""

    shape = Config
    made_by = ("tokenizer", "train_tokenizer")

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config

    @property
    def latent_shape(self) -> tuple[int, int, int]:
        """Channels, height and width of a latent, which are the image's."""
        return self.config.channels, self.config.size, self.config.size

    def encode(self, images: Tensor) -> tuple[Tensor, None]:
        """Return pixels / 127.5 - 1, float32 (N, C, H, W), of uint8 images (N, C, H, W); they are points."""
        require_shape(images, self.latent_shape)
        return to_network(images), None

    def decode(self, latents: Tensor) -> Tensor:
        """Return uint8 images (N, C, H, W), the nearest ones to latents (N, C, H, W)."""
        return to_images(latents)

    def reconstruct(self, images: Tensor) -> Tensor:
        """Return uint8 images (N, C, H, W) unchanged."""
        return self.decode(self.encode(images)[0])


def of_shape(settings: Identity, image_shape: tuple[int, int, int]) -> IdentityTokenizer:
    """Return the tokenizer of images of shape (C, H, W), in evaluation mode."""
    channels, size, _ = image_shape
    return IdentityTokenizer(Config(channels, size)).eval()
