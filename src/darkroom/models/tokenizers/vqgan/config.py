"""The shape of a VQGAN: its `config.json`."""

from dataclasses import dataclass
from typing import Any

from darkroom.models.tokenizers.pixels import Pixels


@dataclass(frozen=True)
class VQGANConfig:
    """What a network is built from; the fields are those of the section.

    options: of the quantiser.
    """

    image_channels: int
    image_size: int
    width: int
    layers: int
    residual_blocks: int
    norm_groups: int
    pixels: Pixels
    quantiser: str
    codebook_size: int
    codebook_dim: int
    options: dict[str, Any]

    @property
    def widths(self) -> list[int]:
        """The widths w, w, 2w, 4w, … of the stem and of each layer after it."""
        return [self.width, *(self.width * 2**layer for layer in range(self.layers))]
