"""What the recipes of all kinds of tokenizers share."""

from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from darkroom.schemas.tokenizers.kind import Kind
from darkroom.schemas.training import Training
from darkroom.tokenizers.protocol import Tokenizer
from darkroom.training.recipe import Recipe, Rows

PREVIEW = 10  # images in a row


class TokenizerRecipe(Recipe):
    """A tokenizer in training.

    model: what leaves the training.
    """

    model: Tokenizer

    @classmethod
    def build(
        cls,
        settings: Kind,
        training: Training,
        image_shape: tuple[int, int, int],
        train: Rows,
        val: Rows,
        perceptual: nn.Module | None = None,
    ) -> Self:
        """Return the recipe with an untrained network.

        Args:
            settings: the kind's section.
            training: of the loop.
            image_shape: (C, H, W).
            train: what is trained on; rows of `images`, uint8 (N, C, H, W).
            val: what is validated on, likewise.
            perceptual: frozen; maps two batches of images (N, C, H, W) in [-1, 1] to their distances (N,). None: none.

        Raises:
            DarkroomError: the settings do not fit the images.
        """
        raise NotImplementedError

    def preview(self) -> NDArray[np.uint8]:
        """Return originals, then their reconstructions: rows of ten, one above the other."""
        source = self.val if len(self.val) else self.train
        rows = list(range(min(PREVIEW, len(source))))
        images = torch.from_numpy(source.__getitems__(rows)["images"])
        device = next(self.modules["tokenizer"].parameters()).device
        decoded = self.model.reconstruct(images.to(device))
        return torch.cat([images, decoded.cpu()]).numpy()
