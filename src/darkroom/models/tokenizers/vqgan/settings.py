"""The section of the tokenizer `vqgan`."""

import math
from typing import Annotated, Literal

from pydantic import Field, model_validator

from darkroom.models.tokenizers.kind_settings import Codes, Kind
from darkroom.models.tokenizers.loss_settings import Adversarial, Perceptual, require_fit
from darkroom.models.tokenizers.quantiser_settings import FSQ, VQ, Binary, SimVQ
from darkroom.params.numbers import Positive
from darkroom.params.section import Section


class VQGAN(Kind):
    """The quantised autoencoder of MUSE and of taming transformers."""

    width: Positive
    layers: Positive
    residual_blocks: Annotated[int, Field(ge=0)]
    norm_groups: Positive
    pixels: Literal["signed", "unit"]
    quantiser: Literal["vq", "simvq", "lfq", "bsq", "fsq"]
    codebook_size: Codes
    codebook_dim: Positive
    vq: VQ
    simvq: SimVQ
    lfq: Binary
    bsq: Binary
    fsq: FSQ
    reconstruction: Literal["l1", "mse"]
    perceptual: Perceptual
    adversarial: Adversarial

    @property
    def factor(self) -> int:
        """How many pixels stand behind one place of the latent: each layer halves the resolution."""
        return int(2**self.layers)

    @property
    def options(self) -> Section:
        """The section of the chosen quantiser."""
        section = getattr(self, self.quantiser)
        assert isinstance(section, Section)
        return section

    @property
    def whole_batch(self) -> bool:
        """Whether the discriminator's weight, or the entropy of all codes, is of the whole batch."""
        entropy = self.options.entropy_weight * self.options.diversity if isinstance(self.options, Binary) else 0.0
        return self.adversarial.whole_batch or entropy != 0

    def unfit(self, image_shape: tuple[int, int, int], batch: int) -> str | None:
        """Return why the codebook does not fit images of shape (C, H, W), so many in an update; None: it does."""
        by_kmeans = self.quantiser == "vq" and self.vq.kmeans_init
        return self.too_few(self.codebook_size, image_shape[1], batch) if by_kmeans else None

    @model_validator(mode="after")
    def _networks(self) -> "VQGAN":
        if self.width % self.norm_groups:
            raise ValueError(f"norm_groups ({self.norm_groups}) must divide width ({self.width})")
        require_fit(self.perceptual, self.adversarial)
        return self

    @model_validator(mode="after")
    def _codebook(self) -> "VQGAN":
        size, name = self.codebook_size, self.quantiser
        if name in ("lfq", "bsq"):
            if size & (size - 1):
                near = 2 ** round(math.log2(size))
                raise ValueError(f"codebook_size is {size:,}, and {name} needs a power of two: {near:,}, say")
        elif name == "fsq" and (product := math.prod(self.fsq.levels)) != size:
            raise ValueError(f"the product of fsq.levels is {product:,}, and must be codebook_size, {size:,}")
        return self
