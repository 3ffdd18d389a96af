"""What the recipes of all kinds of tokenizers share."""

from collections.abc import Callable, Mapping
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from darkroom.errors import DarkroomError
from darkroom.schemas.tokenizers.kind import Kind
from darkroom.schemas.training import Training
from darkroom.tokenizers.protocol import Tokenizer
from darkroom.training.recipe import Recipe, Rows

PREVIEW = 10  # images in a row


def require_fit(kind: str, settings: Kind, training: Training, image_shape: tuple[int, int, int]) -> None:
    """Check that a kind's section fits images of shape (C, H, W): each `build` asks before it builds.

    Raises:
        DarkroomError: the images are not squares that `factor` divides, or what the section's `unfit` says.
    """
    _, height, width = image_shape
    factor = settings.factor
    if height != width or height % factor:
        raise DarkroomError(
            f"`train_tokenizer.{kind}`: one place of the latent stands for {factor} x {factor} pixels, and images of "
            f"{width} x {height} pixels are not squares whose side is a multiple of {factor}: change "
            "`ingest.image_size`, or the section."
        )
    if reason := settings.unfit(image_shape, training.batch):
        raise DarkroomError(f"`train_tokenizer.{kind}`: {reason}.")


def image_losses(
    compare: Callable[..., Tensor],
    x: Tensor,
    output: Tensor,
    perceptual: Callable[[Tensor, Tensor], Tensor] | None,
) -> dict[str, Tensor]:
    """Return `reconstruction` and, where there is a network, `perceptual` of each image, (N,), without weights.

    Args:
        compare: a loss of torch's, such as `mse_loss`.
        x: images as the tokenizer's network sees them, (N, C, H, W).
        output: what came back of them, likewise, float32.
        perceptual: maps x and output to their distances, (N,); None: none.
    """
    losses = {"reconstruction": compare(output, x, reduction="none").flatten(1).mean(dim=1)}
    if perceptual is not None:
        losses["perceptual"] = perceptual(x, output)
    return losses


def total_of(losses: Mapping[str, Tensor], weight: float) -> tuple[Tensor, Tensor | None]:
    """Return reconstruction + weight * perceptual, and the second term alone, None where there is none.

    Args:
        losses: of `image_losses`, or their means.
        weight: of the perceptual loss.
    """
    if "perceptual" not in losses:
        return losses["reconstruction"], None
    perceptual = weight * losses["perceptual"]
    return losses["reconstruction"] + perceptual, perceptual


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
            DarkroomError: the settings do not fit the images, see `require_fit`.
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
