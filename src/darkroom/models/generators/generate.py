"""Images from a trained transformer: noise, guidance, solver, decoder; one compute batch, the last one padded."""

from collections.abc import Iterator, Sequence
from typing import Literal, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from darkroom.diffusion.guidance import guided
from darkroom.diffusion.samplers import sample
from darkroom.models.generators.dit.network import DiT
from darkroom.models.generators.normaliser import Normaliser
from darkroom.models.tokenizers.protocol import Tokenizer
from darkroom.random import normal


class Sampling(Protocol):
    """How many images, from which noise, by which solver, with how much guidance."""

    seed: int
    images: int
    batch: int
    steps: int
    guidance: float

    @property
    def solver(self) -> Literal["euler", "heun"]:
        """The name of the solver."""
        ...


def generate(
    model: DiT,
    tokenizer: Tokenizer,
    normaliser: Normaliser,
    settings: Sampling,
    device: torch.device,
    starts: Sequence[int] | None = None,
) -> Iterator[NDArray[np.uint8]]:
    """Yield the images of `settings` in batches, uint8 (n, C, H, W), n at most `settings.batch`.

    With `starts`, only the batches that begin with these images.

    Image i has class i modulo the number of classes, and noise that follows from (seed, i): it is the same, bit for
    bit, however many images are asked for, because the networks always see `settings.batch` of them.
    """
    classes = model.config.classes
    for start in range(0, settings.images, settings.batch) if starts is None else starts:
        numbers = np.arange(start, start + settings.batch)  # past the last image: padding
        noise = normal(settings.seed, "sample/noise", numbers.tolist(), tokenizer.latent_shape)
        labels = torch.from_numpy(numbers % classes).to(device)
        velocity = guided(model, labels, model.null_label, settings.guidance)
        latents = sample(velocity, torch.from_numpy(noise).to(device), settings.solver, settings.steps)
        images = tokenizer.decode(normaliser.invert(latents))
        yield images[: settings.images - start].cpu().numpy()
