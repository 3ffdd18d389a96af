"""The perceptual distance of two images in the layers of the in-domain extractor: it scores, and teaches nothing.

LPIPS needs published weights of VGG16. Where there are none, the network that scores is the perceptual network too.
"""

import torch
from torch import Tensor, nn

from darkroom.metrics.image import Measure
from darkroom.models.evaluators.extractor import Classifier
from darkroom.models.evaluators.teacher import norm_lengths
from darkroom.models.tokenizers.perceptual import LevelDistance


class ExtractorLevels(nn.Module):
    """The layers of the in-domain extractor, as `LevelDistance` compares them."""

    def __init__(self, network: Classifier) -> None:
        super().__init__()
        self.blocks = network.levels

    def levels(self, x: Tensor) -> list[Tensor]:
        """Return the features of each block, (N, C_l, h_l, w_l), of images x (N, C, H, W) in [-1, 1]."""
        found = []
        for block in self.blocks:
            x = block(x)
            found.append(x)
        return found

    def lengths(self) -> Tensor:
        """Return the usual norm of the features at a position of each block, (blocks,) float32."""
        return norm_lengths([block[1] for block in self.blocks])  # type: ignore[index]


def in_domain_measure(network: Classifier, device: torch.device) -> Measure:
    """Return a function for the distances (N,) float64 of pairs of uint8 images (N, C, H, W), C the extractor's."""
    distance = LevelDistance(ExtractorLevels(network)).eval().to(device)

    def measure(images: Tensor, others: Tensor) -> Tensor:
        with torch.inference_mode():
            pair = (each.to(device).float() / 127.5 - 1 for each in (images, others))  # [-1, 1]
            return distance(*pair).cpu().double()

    return measure
