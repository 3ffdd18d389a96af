"""The network of the discrete VAE (Ramesh et al., 2021, arXiv 2102.12092), in the shape that dalle-pytorch gave it."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from torch import Tensor, nn


@dataclass(frozen=True)
class DVAEConfig:
    """The shape of a network under the names that dalle-pytorch keeps beside its weights, and how it sees pixels.

    alpha: range of the alpha channel. mean, std: of each channel of pixels in [0, 1]; None: as `alpha` says.
    """

    image_size: int
    channels: int
    num_tokens: int
    codebook_dim: int
    num_layers: int
    hidden_dim: int
    num_resnet_blocks: int
    alpha: Literal["signed", "unit"]
    mean: Sequence[float] | None = None
    std: Sequence[float] | None = None


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
        # Without residual blocks the first transposed convolution reads the codebook's vectors itself, as upstream.
        inner = [nn.Conv2d(config.codebook_dim, width, 1), *[Residual(width) for _ in range(blocks)]] if blocks else []
        up = [width if blocks else config.codebook_dim, *[width] * config.num_layers]
        self.decoder = nn.Sequential(
            *inner,
            *[nn.Sequential(nn.ConvTranspose2d(a, b, 4, stride=2, padding=1), nn.ReLU()) for a, b in pairwise(up)],
            nn.Conv2d(width, config.channels, 1),
        )
