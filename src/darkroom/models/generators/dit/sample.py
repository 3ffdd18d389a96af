"""Images from a trained transformer: noise, guidance, solver, decoder."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from darkroom.diffusion.bound import Bits, bits_per_dim, log_variance
from darkroom.diffusion.denoiser import Guidance, denoiser
from darkroom.diffusion.gaussian import Gaussian
from darkroom.diffusion.objectives import stored_objective
from darkroom.diffusion.samplers import sample
from darkroom.diffusion.scalers import LatentScaler
from darkroom.diffusion.types import Denoise, LogProbability, Objective
from darkroom.models.generators.conditions import Condition, with_null
from darkroom.models.generators.dit.classifier import Classifier
from darkroom.models.generators.dit.network import DiT
from darkroom.models.generators.dit.settings import DiTSampling
from darkroom.models.tokenizers.protocol import Tokenizer
from darkroom.rng import derive, normal


class DiTSampler:
    """A transformer, its objective, the scale of its latents, and the tokenizer that decodes them."""

    model: DiT
    guide: nn.Module | None = None
    classifier: Classifier | None = None

    def __init__(self, model: DiT, objective: Objective, scaler: LatentScaler, tokenizer: Tokenizer) -> None:
        self.model, self.objective, self.scaler, self.tokenizer = model, objective, scaler, tokenizer
        self.classes = model.config.classes

    @classmethod
    def open(cls, folder: Path, manifest: Mapping[str, Any], tokenizer: Tokenizer, weights: str) -> "DiTSampler":
        """Return the sampler of a folder that `train_generator` wrote, on the CPU: see `Sampler.open`."""
        model = DiT.from_pretrained(folder if weights == "ema" else folder / "raw")
        scaler = LatentScaler(manifest["latent_mean"], manifest["latent_std"])
        return cls(model, stored_objective(manifest, "flow"), scaler, tokenizer)

    @property
    def device(self) -> torch.device:
        """The device of the network."""
        return next(self.model.parameters()).device

    def to(self, device: torch.device) -> "DiTSampler":
        """Move the network to a device, and return the sampler."""
        self.model.to(device)
        return self

    def __call__(self, numbers: Sequence[int], condition: Condition, seed: int, settings: DiTSampling) -> Tensor:
        """Return images, uint8 (N, C, H, W), from noise that follows from (seed, number)."""
        noise = torch.from_numpy(normal(seed, "sample/noise", numbers, self.tokenizer.latent_shape)).to(self.device)
        seeds = [derive(seed, "sample/steps", number) for number in numbers]
        return self.tokenizer.decode(self.latents(noise, condition, seeds, settings))

    def latents(self, noise: Tensor, condition: Condition, seeds: Sequence[int], settings: DiTSampling) -> Tensor:
        """Return latents as the tokenizer has them, float32 (N, C, H, W).

        Args:
            noise: standard normal, of the shape of the latents.
            condition: that of the N images.
            seeds: one per image, for the noise that the solver adds.
            settings: solver, steps and guidance.
        """
        classifier: LogProbability | None = None
        if self.classifier is not None:
            assert isinstance(condition, Tensor)  # `require_guides` has checked that there are classes
            classifier = partial(self.classifier.log_probability, labels=condition)
        null, guidance = self.model.null_label, Guidance.of(settings)
        denoise = dit_denoiser(self.model, self.objective, condition, null, guidance, self.guide, classifier)
        generators = [torch.Generator().manual_seed(seed) for seed in seeds]
        latents = sample(denoise, noise, self.objective, settings, generators)
        return self.scaler.invert(latents)

    def bits(self, x0: Tensor, condition: Condition, noise: Callable[[int], Tensor]) -> Bits:
        """Return the bits per dim of scaled latents x0 (N, C, H, W) under the unguided network, with their terms.

        `noise` returns standard normal numbers of the shape of x0 for a timestep.
        """
        objective = self.objective
        assert isinstance(objective, Gaussian)  # `fits` has checked it
        denoise = dit_denoiser(self.model, objective, condition, self.model.null_label)

        def predict(x: Tensor, steps: Tensor) -> tuple[Tensor, Tensor]:
            denoised = denoise(x, steps, None)
            return denoised.x0, log_variance(objective.variance, denoised.variance, steps, objective.schedule, x.ndim)

        return bits_per_dim(predict, x0, noise, objective.schedule)


def dit_denoiser(
    model: Callable[[Tensor, Tensor, Condition], Tensor],
    objective: Objective,
    condition: Condition,
    null_label: int,
    guidance: Guidance | float = 1.0,
    guide: Callable[[Tensor, Tensor, Condition], Tensor] | None = None,
    classifier: LogProbability | None = None,
) -> Denoise:
    """Return the denoiser of a DiT under a condition; guidance uses its null, or a guide, as the other prediction.

    Without a condition there is no null, so guidance needs a guide.
    """
    twice = with_null(condition, null_label)
    return denoiser(
        lambda x, timesteps, before: model(x, timesteps, condition),
        objective,
        guidance,
        both=None if condition is None else lambda x, timesteps, before: model(x, timesteps, twice),
        guide=None if guide is None else lambda x, timesteps, before: guide(x, timesteps, condition),
        classifier=classifier,
    )
