"""Images that an autoregressive tokenizer samples for its grids while it trains; they do not affect the weights."""

# No effect on any weight: draws images for the grids of a training

import numpy as np
from numpy.typing import NDArray

from darkroom.models.tokenizers.settings import SampleTokenizer
from darkroom.models.tokenizers.vq_ar.generate import generate
from darkroom.models.tokenizers.vq_ar.network import VQAutoregressive
from darkroom.models.tokenizers.vq_ar.settings import GridSampling


def own_images(model: VQAutoregressive, settings: GridSampling, guided: bool) -> NDArray[np.uint8]:
    """Return `settings.images` images, (N, C, H, W): with classes, image i is of class i modulo their number.

    guided: whether a start token for no class is trained, which guidance needs.
    """
    options = settings.model_dump(include={"min_p", "temperature"}) | {"guidance": settings.guidance if guided else 1.0}
    request = SampleTokenizer(images=settings.images, batch=settings.images, seed=0, **options)
    (images,) = generate(model, request, model.codebook.device)
    return images
