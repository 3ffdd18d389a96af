"""The discriminator of patches that a tokenizer may be trained against."""

from collections.abc import Sequence
from itertools import pairwise

from torch import Tensor, nn

from darkroom.errors import DarkroomError
from darkroom.models.tokenizers.loss_settings import WINDOW

_SLOPE = 0.1


class PatchDiscriminator(nn.Module):
    """Judges overlapping patches of an image: one logit each, high for real ones.

    After PatchGAN (Isola et al., 2017, arXiv 1611.07004) with group norms, so that an image's logits do not depend on
    its company: a 5 x 5 convolution, then for each further level a 4 x 4 convolution of stride 2 with a group norm,
    then 1 x 1 and 4 x 4 convolutions to logits, leaky ReLU of slope 0.1 between them.

    Args:
        in_channels: of the images.
        image_size: pixels, height and width.
        channels: width of each level; each but the first halves the resolution.
        norm_groups: groups of the norms.

    Raises:
        DarkroomError: at the last level fewer than 4 pixels a side are left.
    """

    def __init__(self, in_channels: int, image_size: int, channels: Sequence[int], norm_groups: int) -> None:
        super().__init__()
        left = image_size // 2 ** (len(channels) - 1)
        if left < WINDOW:
            raise DarkroomError(
                f"the discriminator's {len(channels)} levels leave {left} of {image_size} pixels a side, and it needs "
                f"{WINDOW}: take fewer widths in `adversarial.channels`, or a larger `ingest.image_size`."
            )
        layers: list[nn.Module] = [nn.Conv2d(in_channels, channels[0], 5, padding=2), nn.LeakyReLU(_SLOPE)]
        for inner, outer in pairwise(channels):
            layers += [
                nn.Conv2d(inner, outer, 4, stride=2, padding=1),
                nn.GroupNorm(norm_groups, outer),
                nn.LeakyReLU(_SLOPE),
            ]
        layers += [nn.Conv2d(channels[-1], channels[-1], 1), nn.LeakyReLU(_SLOPE), nn.Conv2d(channels[-1], 1, WINDOW)]
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits (N, 1, h, w) of images x (N, C, H, W); h = H / 2^(levels - 1) - 3, as w of W."""
        return self.layers(x)
