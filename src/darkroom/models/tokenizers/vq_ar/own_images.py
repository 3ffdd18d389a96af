"""Images that an autoregressive tokenizer draws by itself while it trains, for its grids; no weight follows."""

# No effect on any output: draws images for the grids of a training; no weight follows

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from darkroom.models.tokenizers.vq_ar.generate import generate
from darkroom.models.tokenizers.vq_ar.network import VQAutoregressive
from darkroom.models.tokenizers.vq_ar.settings import GridSampling


@dataclass
class _Shown:
    images: int
    batch: int
    min_p: float
    temperature: float
    guidance: float
    seed: int = 0


def own_images(model: VQAutoregressive, settings: GridSampling, guided: bool) -> NDArray[np.uint8]:
    """Return `settings.images` images, (N, C, H, W): with classes, image i is of class i modulo their number.

    guided: whether a start token for no class is trained, from which guidance leads away.
    """
    count, guidance = settings.images, settings.guidance if guided else 1.0
    shown = _Shown(count, count, settings.min_p, settings.temperature, guidance)
    (images,) = generate(model, shown, model.codebook.device)
    return images
