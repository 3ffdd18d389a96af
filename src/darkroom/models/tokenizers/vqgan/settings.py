"""The section of the tokenizer `vqgan`, and the shape of its network."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field

from darkroom.models.tokenizers.sections import (
    FSQ,
    LFQ,
    VQ,
    Adversarial,
    Binary,
    Codes,
    Kind,
    Perceptual,
    Pixels,
    SimVQ,
    unfit_losses,
)
from darkroom.params.section import Positive, Section


class VQGAN(Kind):
    """The quantised autoencoder of MUSE and of taming transformers."""

    width: Positive = 32
    """Channels of the first level; the following levels have the same number, twice, four times, and so on."""
    layers: Positive = 2
    """Levels, each of which halves the resolution."""
    residual_blocks: Annotated[int, Field(ge=0)] = 1
    """Residual blocks at the lowest resolution, of the encoder and of the decoder."""
    norm_groups: Positive = 16
    """Groups of the group norms."""
    pixels: Pixels = "signed"
    """Range of pixels in the networks and the losses: signed, -1 to 1, or unit, 0 to 1 as in MUSE."""
    quantiser: Literal["vq", "simvq", "lfq", "bsq", "fsq"] = "vq"
    """Which quantiser; its options are in the section of its name."""
    codebook_size: Codes = 256
    """Number of codes; for lfq and bsq a power of two."""
    codebook_dim: Positive = 8
    """Channels of the latent; lfq and bsq have log2 of codebook_size, fsq the number of levels."""
    vq: VQ = VQ.model_construct()
    """A codebook of moving averages of the latents of each code."""
    simvq: SimVQ = SimVQ.model_construct()
    """A codebook that is a trained linear map of fixed random vectors."""
    lfq: LFQ = LFQ.model_construct()
    """Lookup-free quantisation: the signs of the latent."""
    bsq: Binary = Binary.model_construct()
    """Binary spherical quantisation: the signs of the latent on the unit sphere."""
    fsq: FSQ = FSQ.model_construct()
    """Finite scalar quantisation: each channel is rounded."""
    reconstruction: Literal["l1", "mse"] = "mse"
    """Loss of the reconstruction."""
    perceptual: Perceptual = Perceptual.model_construct()
    """Perceptual loss: a distance in the features of a frozen network."""
    adversarial: Adversarial = Adversarial.model_construct()
    """Adversarial loss: a discriminator of patches."""

    @property
    def factor(self) -> int:
        """The downsampling factor of the latent: each layer halves the resolution."""
        return int(2**self.layers)

    @property
    def options(self) -> Section:
        """The section of the chosen quantiser."""
        section = getattr(self, self.quantiser)
        assert isinstance(section, Section)
        return section

    @property
    def whole_batch(self) -> bool:
        """Whether the discriminator's weight, or a loss of all codes, needs the whole batch."""
        entropy = self.options.entropy_weight * self.options.diversity if isinstance(self.options, Binary) else 0.0
        drawn = isinstance(self.options, VQ) and self.options.whole_batch
        return self.adversarial.whole_batch or entropy != 0 or drawn

    def unfit(self, image_shape: tuple[int, int, int], batch: int) -> str | None:
        """Return why the codebook does not fit batches of images of shape (C, H, W); None: it does."""
        by_kmeans = self.quantiser == "vq" and self.vq.kmeans_init
        return self.too_few(self.codebook_size, image_shape[1], batch) if by_kmeans else None

    def _misfits(self) -> Iterator[str]:
        size, name = self.codebook_size, self.quantiser
        if self.width % self.norm_groups:
            yield f"norm_groups ({self.norm_groups}) must divide width ({self.width})"
        yield from unfit_losses(self.perceptual, self.adversarial)
        if name in ("lfq", "bsq") and size & (size - 1):
            yield f"codebook_size is {size:,}, but {name} needs a power of two, such as {2 ** round(math.log2(size)):,}"
        if name == "fsq" and (product := math.prod(self.fsq.levels)) != size:
            yield f"the product of fsq.levels is {product:,}, but must be codebook_size, {size:,}"


@dataclass(frozen=True)
class VQGANConfig:
    """The configuration of a network; the fields are those of the section.

    options: those of the quantiser.
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
