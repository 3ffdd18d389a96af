"""The quantised autoencoder of VQGAN (Esser et al., 2021, arXiv 2012.09841), as MUSE builds it (arXiv 2301.00704)."""

import math
from dataclasses import fields
from itertools import pairwise
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from darkroom.models.fused import fused
from darkroom.models.tokenizers import sections
from darkroom.models.tokenizers.codebooks import AveragedCodebook, LinearCodebook
from darkroom.models.tokenizers.protocol import DiscreteNetwork, fit_size, require_shape, to_images, to_network
from darkroom.models.tokenizers.quantiser import Quantised, Quantiser, Rounded, Signs
from darkroom.models.tokenizers.vqgan import published
from darkroom.models.tokenizers.vqgan.settings import VQGAN, VQGANConfig
from darkroom.params.section import Section

SECTIONS: dict[str, type[Section]] = {
    "vq": sections.VQ,
    "simvq": sections.SimVQ,
    "lfq": sections.Binary,
    "bsq": sections.Binary,
    "fsq": sections.FSQ,
}


def build_quantiser(name: str, size: int, channels: int, settings: Section) -> Quantiser:
    """Return a quantiser of K = `size` codes; `channels` are for vq and simvq; the others' follow from the codes."""
    if isinstance(settings, sections.VQ):
        return AveragedCodebook(size, channels, settings)
    if isinstance(settings, sections.SimVQ):
        return LinearCodebook(size, channels, settings)
    if isinstance(settings, sections.FSQ):
        return Rounded(settings)
    assert isinstance(settings, sections.Binary)
    return Signs(size, settings, spherical=name == "bsq")


_SLOPE = 0.1


def config_of(settings: VQGAN, image_shape: tuple[int, int, int]) -> VQGANConfig:
    """Return the network's configuration from a section, for images of shape (C, H, W)."""
    named = settings.model_dump(include={field.name for field in fields(VQGANConfig)})
    options = settings.options.model_dump()
    return VQGANConfig(image_channels=image_shape[0], image_size=image_shape[1], options=options, **named)


class Residual(nn.Module):
    """x + f(x), f = (3 x 3 convolution, activation, norm) twice and a 1 x 1 convolution.

    In the encoder the norm comes before the activation, a leaky ReLU; in the decoder the activation is a gated linear
    unit a * sigmoid(b) of a convolution with twice the channels (Dauphin et al., 2017, arXiv 1612.08083).
    """

    def __init__(self, width: int, groups: int, gated: bool) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for _ in range(2):
            norm = nn.GroupNorm(groups, width)
            if gated:
                layers += [fused(nn.Conv2d(width, 2 * width, 3, padding=1), 2), nn.GLU(dim=1), norm]
            else:
                layers += [nn.Conv2d(width, width, 3, padding=1), norm, nn.LeakyReLU(_SLOPE)]
        self.layers = nn.Sequential(*layers, nn.Conv2d(width, width, 1))

    def forward(self, x: Tensor) -> Tensor:
        """Return x + f(x), (N, C, H, W)."""
        return x + self.layers(x)


class VQGANTokenizer(DiscreteNetwork):
    """An encoder, a quantiser, a decoder, behind the tokenizer protocol and that of codes.

    Its continuous latent is the quantiser's input, a point; `decode` quantises it first.
    """

    shape = VQGANConfig
    published: ClassVar[Any] = published

    def __init__(self, config: VQGANConfig) -> None:
        super().__init__()
        self.config = config
        options = SECTIONS[config.quantiser].model_validate(config.options)
        self.quantiser = build_quantiser(config.quantiser, config.codebook_size, config.codebook_dim, options)
        widths, groups, inner = config.widths, config.norm_groups, config.widths[-1]
        down = [
            layer
            for narrow, wide in pairwise(widths)
            for layer in (nn.Conv2d(narrow, wide, 4, stride=2, padding=1), nn.LeakyReLU(_SLOPE))
        ]
        up = [
            layer
            for wide, narrow in pairwise(reversed(widths))
            for layer in (nn.ConvTranspose2d(wide, narrow, 4, stride=2, padding=1), nn.LeakyReLU(_SLOPE))
        ]
        self.encoder = nn.Sequential(
            nn.Conv2d(config.image_channels, widths[0], 5, padding=2),
            *down,
            *(Residual(inner, groups, gated=False) for _ in range(config.residual_blocks)),
            nn.Conv2d(inner, self.quantiser.channels, 1),
        )
        self.decoder = nn.Sequential(
            nn.Conv2d(self.quantiser.channels, inner, 1),
            *(Residual(inner, groups, gated=True) for _ in range(config.residual_blocks)),
            *up,
            nn.Conv2d(widths[0], config.image_channels, 1),
        )
        fit_size(self.encoder, self.decoder, config.image_size, 2**config.layers)

    @property
    def last_layer(self) -> nn.Parameter:
        """The weight of the decoder's last layer, at which an adaptive weight compares gradients."""
        weight = self.decoder[-1].weight
        assert isinstance(weight, nn.Parameter)
        return weight

    @property
    def latent_shape(self) -> tuple[int, int, int]:
        """Channels, height and width of a latent."""
        side = math.ceil(self.config.image_size / 2**self.config.layers)
        return self.quantiser.channels, side, side

    def pixels(self, images: Tensor) -> Tensor:
        """Return uint8 images (N, C, H, W) as the network sees them: in [-1, 1], or in [0, 1] with pixels `unit`."""
        return to_network(images, self.config.pixels)

    def signed(self, x: Tensor) -> Tensor:
        """Return inputs or outputs of the network in [-1, 1]."""
        return x if self.config.pixels == "signed" else 2 * x - 1

    def forward(self, x: Tensor) -> tuple[Tensor, Quantised]:
        """Return the reconstruction of x, (N, C, H, W) from `pixels`, through its codes, and the quantisation."""
        quantised = self.quantiser(self.encoder(x))
        return self.decoder(quantised.vectors), quantised

    @property
    def codebook_size(self) -> int:
        """K, the number of codes."""
        return self.config.codebook_size

    @property
    def codebook(self) -> Tensor:
        """The vector that each code stands for, (K, C) float32."""
        return self.quantiser.codebook.detach()

    @torch.no_grad()
    def encode(self, images: Tensor) -> tuple[Tensor, None]:
        """Return the latents before they are quantised, (N, *latent_shape) float32, of uint8 images (N, C, H, W)."""
        config = self.config
        require_shape(images, (config.image_channels, config.image_size, config.image_size))
        return self.quantiser.prepare(self.encoder(self.pixels(images)).float()), None

    @torch.no_grad()
    def encode_codes(self, images: Tensor) -> Tensor:
        """Return the codes, int64 (N, h, w), of uint8 images (N, C, H, W)."""
        return self.quantiser.codes_of(self.encode(images)[0])

    @torch.no_grad()
    def decode(self, latents: Tensor) -> Tensor:
        """Return uint8 images (N, C, H, W) of latents (N, *latent_shape), each place by its nearest code."""
        return self.decode_codes(self.quantiser.codes_of(latents))

    @torch.no_grad()
    def decode_codes(self, codes: Tensor) -> Tensor:
        """Return uint8 images (N, C, H, W) of codes (N, h, w)."""
        return to_images(self.decoder(self.quantiser.vectors_of(codes)), self.config.pixels)
