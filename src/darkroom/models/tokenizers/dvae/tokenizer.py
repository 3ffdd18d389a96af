"""The discrete VAE of DALL-E (Ramesh et al., 2021, arXiv 2102.12092), its network in the shape of dalle-pytorch's."""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, ClassVar, Literal

import torch
from einops import rearrange
from torch import Tensor, nn
from torch.nn import functional

from darkroom.device import in_float32, to_device
from darkroom.models.tokenizers.dvae import published
from darkroom.models.tokenizers.dvae.relaxations import gumbel_softmax, one_hot, reinmax, straight_through
from darkroom.models.tokenizers.dvae.settings import DVAE, DVAEConfig, Relaxation
from darkroom.models.tokenizers.protocol import DiscreteNetwork, fit_size, require_shape, to_images, to_network


class Residual(nn.Module):
    """x + 1x1(ReLU(3x3(ReLU(3x3(x)))))."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(width, width, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(width, width, 1),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return a tensor of x's shape, (N, width, h, w)."""
        result: Tensor = self.net(x) + x
        return result


class DVAENetwork(nn.Module):
    """Encoder, codebook and decoder.

    Encoder: `num_layers` of [4x4 convolution of stride 2, ReLU], residual blocks, a 1x1 convolution to the logits.
    The decoder mirrors it. The names of the weights are those of dalle-pytorch's.
    """

    def __init__(self, config: DVAEConfig) -> None:
        super().__init__()
        width, blocks = config.hidden_dim, config.num_resnet_blocks
        down = [config.channels, *[width] * config.num_layers]
        self.encoder = nn.Sequential(
            *[nn.Sequential(nn.Conv2d(a, b, 4, stride=2, padding=1), nn.ReLU()) for a, b in pairwise(down)],
            *[Residual(width) for _ in range(blocks)],
            nn.Conv2d(width, config.num_tokens, 1),
        )
        self.codebook = nn.Embedding(config.num_tokens, config.codebook_dim)
        # Without residual blocks the first transposed convolution reads the codebook's vectors, as upstream.
        inner = [nn.Conv2d(config.codebook_dim, width, 1), *[Residual(width) for _ in range(blocks)]] if blocks else []
        up = [width if blocks else config.codebook_dim, *[width] * config.num_layers]
        self.decoder = nn.Sequential(
            *inner,
            *[nn.Sequential(nn.ConvTranspose2d(a, b, 4, stride=2, padding=1), nn.ReLU()) for a, b in pairwise(up)],
            nn.Conv2d(width, config.channels, 1),
        )


# From logits to latents.
Way = Relaxation | Literal["hard", "mean"]


class DiscreteVAE(DiscreteNetwork):
    """A trained or training `DVAENetwork` behind the protocols `Tokenizer` and `Codes`.

    Its continuous latent is the expected vector of the codebook, softmax(logits) @ codebook: a point.
    """

    shape = DVAEConfig
    published: ClassVar[Any] = published
    prefix = "network."

    def __init__(self, config: DVAEConfig) -> None:
        super().__init__()
        self.config = config
        self.network = DVAENetwork(config)
        fit_size(self.network.encoder, self.network.decoder, config.image_size, 2**config.num_layers)

    @classmethod
    def from_settings(cls, settings: DVAE, image_shape: tuple[int, int, int]) -> "DiscreteVAE":
        """Return an untrained network for square images of shape (C, H, W)."""
        channels, size, _ = image_shape
        named = {theirs: getattr(settings, ours) for theirs, ours in published.NAMES.items()}
        pixels = settings.model_dump(include={"alpha", "mean", "std"})
        return cls(DVAEConfig(image_size=size, channels=channels, **named, **pixels))

    @property
    def places(self) -> tuple[int, int]:
        """Height and width of a latent."""
        side = math.ceil(self.config.image_size / 2**self.config.num_layers)
        return side, side

    @property
    def latent_shape(self) -> tuple[int, int, int]:
        """Channels, height and width of a latent."""
        return self.config.codebook_dim, *self.places

    @property
    def codebook_size(self) -> int:
        """K, the number of codes."""
        return self.config.num_tokens

    @property
    def codebook(self) -> Tensor:
        """The vector that each code stands for, (num_tokens, codebook_dim) float32."""
        return self.network.codebook.weight

    def pixels(self, images: Tensor) -> Tensor:
        """Return uint8 images (N, C, H, W) as the network sees them: colours in [-1, 1], alpha by `alpha`.

        `unit`: alpha in [0, 1], as in dalle-pytorch; `signed`: in [-1, 1], like the colours. With `mean` and `std`:
        (x - mean) / std of each channel of pixels x in [0, 1].

        Raises:
            DarkroomError: images of another number of channels or another size.
        """
        config = self.config
        require_shape(images, (config.channels, config.image_size, config.image_size))
        if config.mean is not None and config.std is not None:
            mean, std = (_by_channel(values, images) for values in (config.mean, config.std))
            return (to_network(images, "unit") - mean) / std
        x = to_network(images)
        if config.alpha == "unit" and config.channels == 4:
            x = torch.cat([x[:, :3], (x[:, 3:] + 1) / 2], dim=1)
        return x

    def images(self, output: Tensor) -> Tensor:
        """Return uint8 images (N, C, H, W) from outputs of the network."""
        config = self.config
        if config.mean is not None and config.std is not None:
            mean, std = (_by_channel(values, output) for values in (config.mean, config.std))
            return to_images(output.float() * std + mean, "unit")
        if config.alpha == "unit" and config.channels == 4:
            output = torch.cat([output[:, :3], output[:, 3:] * 2 - 1], dim=1)
        return to_images(output)

    def forward(
        self, x: Tensor, way: Way, noise: Tensor | None = None, temperature: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return the network's output for x, and the logits.

        Args:
            x: from `pixels`, (N, C, H, W).
            way: from logits to latents: the most probable codes (`hard`), their expectation (`mean`), or drawn codes
                with a gradient through the draw (`soft`, `straight_through`, `reinmax`).
            noise: Gumbel noise of the draw, (N, K, h, w).
            temperature: that of the draw, a scalar.
        """
        logits = self.logits(x)
        with in_float32(x.device):
            latents = self._mixed(self._weights(logits, way, noise, temperature))
        return self.network.decoder(latents), logits

    @staticmethod
    def _weights(logits: Tensor, way: Way, noise: Tensor | None, temperature: Tensor | None) -> Tensor:
        """Return the weight of each code, (N, K, h, w)."""
        if way == "hard":
            return one_hot(logits)
        if way == "mean":
            return logits.softmax(dim=1)
        assert noise is not None and temperature is not None
        soft = gumbel_softmax(logits, noise, temperature)
        if way == "soft":
            return soft
        hard = straight_through(soft)
        return hard if way == "straight_through" else reinmax(logits, hard, temperature)

    def logits(self, x: Tensor) -> Tensor:
        """Return the logits of the codes, (N, K, h, w) float32, for images from `pixels`."""
        logits: Tensor = self.network.encoder(x).float()
        return logits

    def _mixed(self, weights: Tensor) -> Tensor:
        """Return weights @ codebook, (N, codebook_dim, h, w), of weights (N, K, h, w): a 1x1 convolution."""
        return functional.conv2d(weights, self.codebook.float().t()[:, :, None, None])

    @torch.no_grad()
    def encode(self, images: Tensor) -> tuple[Tensor, None]:
        """Return the expected vectors, (N, *latent_shape) float32, of uint8 images (N, C, H, W): no logvar."""
        logits = self.logits(self.pixels(images))
        with in_float32(images.device):
            return self._mixed(logits.softmax(dim=1)), None

    @torch.no_grad()
    def decode(self, latents: Tensor) -> Tensor:
        """Return uint8 images (N, C, H, W) from latents (N, *latent_shape), unquantised: it is trained on mixtures."""
        return self.images(self.network.decoder(latents))

    @torch.no_grad()
    def encode_codes(self, images: Tensor) -> Tensor:
        """Return the most probable codes, int64 (N, h, w), of uint8 images (N, C, H, W)."""
        return self.logits(self.pixels(images)).argmax(dim=1)

    @torch.no_grad()
    def decode_codes(self, codes: Tensor) -> Tensor:
        """Return uint8 images (N, C, H, W) from codes (N, h, w)."""
        return self.decode(self.vectors(codes))

    def vectors(self, codes: Tensor) -> Tensor:
        """Return the vectors that codes (N, h, w) stand for, (N, codebook_dim, h, w)."""
        return rearrange(self.network.codebook(codes), "n h w c -> n c h w")

    @property
    def saved(self) -> nn.Module:
        """The network, whose weights have dalle-pytorch's names."""
        return self.network


def _by_channel(values: Sequence[float], images: Tensor) -> Tensor:
    return to_device(torch.tensor(values), images.device)[:, None, None]
