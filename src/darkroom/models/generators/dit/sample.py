"""Images from a trained transformer: noise, guidance, solver, decoder."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from darkroom.diffusion.denoiser import Denoise, Guidance, denoiser
from darkroom.diffusion.objectives import Objective, stored_objective
from darkroom.diffusion.samplers import sample
from darkroom.diffusion.scalers import LatentScaler
from darkroom.models.generators.dit.network import DiT
from darkroom.models.generators.dit.settings import DiTSampling
from darkroom.models.tokenizers.protocol import Tokenizer
from darkroom.random import derive, normal
from darkroom.training.averages import reconstruct


class DiTSampler:
    """A transformer, its objective, the scale of its latents, and the tokenizer that decodes them."""

    def __init__(self, model: DiT, objective: Objective, scaler: LatentScaler, tokenizer: Tokenizer) -> None:
        self.model, self.objective, self.scaler, self.tokenizer = model, objective, scaler, tokenizer
        self.classes = model.config.classes

    @classmethod
    def open(
        cls, folder: Path, manifest: Mapping[str, Any], tokenizer: Tokenizer, weights: str, sigma_rel: float | None
    ) -> "DiTSampler":
        """Return the sampler of a folder that `train_generator` wrote, on the CPU.

        Args:
            folder: with the weights.
            manifest: its manifest.
            tokenizer: that of the latents.
            weights: `ema` or `raw`.
            sigma_rel: relative width of the average, rebuilt from the training's `ema_profiles`; None: as `weights`.
        """
        model = DiT.from_pretrained(folder if weights == "ema" else folder / "raw")
        if sigma_rel is not None:
            model.load_state_dict(reconstruct(folder / "profiles", sigma_rel))
        scaler = LatentScaler(manifest["latent_mean"], manifest["latent_std"])
        return cls(model, stored_objective(manifest, "flow"), scaler, tokenizer)

    @property
    def device(self) -> torch.device:
        """Where the network lies."""
        return next(self.model.parameters()).device

    def to(self, device: torch.device) -> "DiTSampler":
        """Move the network to a device, and return the sampler."""
        self.model.to(device)
        return self

    def __call__(self, numbers: Sequence[int], labels: Tensor, seed: int, settings: DiTSampling) -> Tensor:
        """Return images, uint8 (N, C, H, W), from noise that follows from (seed, number)."""
        noise = torch.from_numpy(normal(seed, "sample/noise", numbers, self.tokenizer.latent_shape))
        seeds = [derive(seed, "sample/steps", number) for number in numbers]
        return self.tokenizer.decode(self.latents(noise.to(self.device), labels, seeds, settings))

    def latents(self, noise: Tensor, labels: Tensor, seeds: Sequence[int], settings: DiTSampling) -> Tensor:
        """Return latents as the tokenizer has them, float32 (N, C, H, W).

        Args:
            noise: standard normal, of the shape of the latents.
            labels: classes, int64 (N,).
            seeds: of the noise that is added on the way, one an image.
            settings: solver, steps and guidance.
        """
        denoise = dit_denoiser(self.model, self.objective, labels, self.model.null_label, Guidance.of(settings))
        generators = [torch.Generator().manual_seed(seed) for seed in seeds]
        latents = sample(denoise, noise, self.objective, settings, generators)
        return self.scaler.invert(latents)


def dit_denoiser(
    model: Callable[[Tensor, Tensor, Tensor], Tensor],
    objective: Objective,
    labels: Tensor,
    null_label: int,
    guidance: Guidance | float = 1.0,
) -> Denoise:
    """Return the denoiser of a DiT for labels (N,); guidance leads away from the null label."""
    twice = torch.cat([labels, torch.full_like(labels, null_label)])
    return denoiser(
        lambda x, timesteps, before: model(x, timesteps, labels),
        objective,
        guidance,
        both=lambda x, timesteps, before: model(x, timesteps, twice),
    )
