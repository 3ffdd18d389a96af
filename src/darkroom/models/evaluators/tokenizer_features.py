"""A tokenizer's encoder as an extractor: the mean of the latent, flattened."""

# No effect on any output: no stage opens it, only `darkroom score`; a stage that did would depend on models/tokenizer

from math import prod
from pathlib import Path

import torch
from torch import Tensor, nn

from darkroom.models.tokenizers.protocol import Tokenizer, load_tokenizer


class TokenizerFeatures(nn.Module):
    """A tokenizer's latents. dim: their length, channels times height times width."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        super().__init__()
        self.tokenizer, self.dim = tokenizer, prod(tokenizer.latent_shape)

    @torch.no_grad()
    def features(self, images: Tensor) -> Tensor:
        """Return means (N, dim) float32 of uint8 images (N, C, H, W).

        Raises:
            DarkroomError: images of another shape than those that the tokenizer was made for.
        """
        return self.tokenizer.encode(images)[0].flatten(1).float()


def open_tokenizer_features(folder: Path) -> tuple[TokenizerFeatures, str]:
    """Return the encoder of the tokenizer in `folder`, on the CPU, and the hash of its manifest.

    Raises:
        ArtifactError: missing or damaged; names the folder.
    """
    tokenizer, fingerprint = load_tokenizer(folder)
    return TokenizerFeatures(tokenizer), fingerprint
