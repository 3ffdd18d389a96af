"""Images that an autoregressive tokenizer draws by itself while it trains, for its grids; no weight follows."""

# No effect on any output: draws images for the grids of a training; no weight follows

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from darkroom.models.tokenizers.vq_ar.generate import generate
from darkroom.models.tokenizers.vq_ar.network import VQAutoregressive


@dataclass
class _Shown:
    images: int
    batch: int
    guidance: float
    seed: int = 0
    min_p: float = 0.5
    temperature: float = 0.7


def own_images(model: VQAutoregressive, count: int, guided: bool) -> NDArray[np.uint8]:
    """Return some images, (count, C, H, W): with classes, image i is of class i modulo their number.

    guided: whether a start token for no class is trained, from which guidance leads away.
    """
    (images,) = generate(model, _Shown(count, count, 1.5 if guided else 1.0), model.codebook.device)
    return images
