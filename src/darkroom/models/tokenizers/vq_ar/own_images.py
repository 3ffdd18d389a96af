"""Images that an autoregressive tokenizer draws while it trains, for its grids and scores; no weight follows."""

# No effect on any weight: draws images for the grids and scores of a training

from functools import partial

import numpy as np
from numpy.typing import NDArray

from darkroom.models.evaluators.evaluation import Evaluation
from darkroom.models.tokenizers.settings import SampleTokenizer
from darkroom.models.tokenizers.vq_ar.generate import generate
from darkroom.models.tokenizers.vq_ar.network import VQAutoregressive
from darkroom.models.tokenizers.vq_ar.settings import GridSampling
from darkroom.training.recipe import Gather


def _request(settings: GridSampling, guided: bool, images: int, batch: int, seed: int) -> SampleTokenizer:
    how = settings.model_dump(include={"min_p", "temperature"}) | {"guidance": settings.guidance if guided else 1.0}
    return SampleTokenizer(images=images, batch=batch, seed=seed, **how)


def own_images(model: VQAutoregressive, settings: GridSampling, guided: bool) -> NDArray[np.uint8]:
    """Return `settings.images` images, (N, C, H, W): with classes, image i is of class i modulo their number.

    guided: whether a start token for no class is trained, from which guidance leads away.
    """
    request = _request(settings, guided, settings.images, settings.images, seed=0)
    (images,) = generate(model, request, model.codebook.device)
    return images


def scores_of_own_images(
    evaluation: Evaluation,
    model: VQAutoregressive,
    settings: GridSampling,
    guided: bool,
    rank: int,
    count: int,
    gather: Gather,
) -> dict[str, float]:
    """Return the scores of images with as many of each class, which is what `sample_tokenizer` asks for.

    Args:
        evaluation: gives number, batch and seed of the images, and compares them.
        model: in evaluation mode.
        settings: how codes are chosen.
        guided: whether a start token for no class is trained, from which guidance leads away.
        rank: of this process, which makes its share.
        count: of processes.
        gather: puts their rows together.
    """
    how, device = evaluation.settings, model.codebook.device
    request = _request(settings, guided, how.images, how.batch, how.seed)
    numbers = np.arange(how.images) % model.config.classes if model.config.classes else None
    make = partial(generate, model, request, device)
    return evaluation.scores(lambda starts: make(starts=starts), numbers, device, rank, count, gather)
