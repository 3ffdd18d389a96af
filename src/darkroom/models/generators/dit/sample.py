"""Images from a trained transformer: noise, guidance, solver, decoder."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from darkroom.diffusion.guidance import guided
from darkroom.diffusion.samplers import sample
from darkroom.models.generators.dit.network import DiT
from darkroom.models.generators.dit.settings import Sampling
from darkroom.models.generators.normaliser import Normaliser
from darkroom.models.tokenizers.protocol import Tokenizer
from darkroom.random import normal
from darkroom.training.averages import reconstruct


class DiTSampler:
    """A transformer, the scale of its latents, and the tokenizer that decodes them."""

    def __init__(self, model: DiT, normaliser: Normaliser, tokenizer: Tokenizer) -> None:
        self.model, self.normaliser, self.tokenizer = model, normaliser, tokenizer
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
        return cls(model, Normaliser(manifest["latent_mean"], manifest["latent_std"]), tokenizer)

    @property
    def device(self) -> torch.device:
        """Where the network lies."""
        return next(self.model.parameters()).device

    def to(self, device: torch.device) -> "DiTSampler":
        """Move the network to a device, and return the sampler."""
        self.model.to(device)
        return self

    def __call__(self, numbers: Sequence[int], labels: Tensor, seed: int, settings: Sampling) -> Tensor:
        """Return images, uint8 (N, C, H, W), from noise that follows from (seed, number)."""
        noise = torch.from_numpy(normal(seed, "sample/noise", numbers, self.tokenizer.latent_shape))
        velocity = guided(self.model, labels, self.model.null_label, settings.guidance)
        latents = sample(velocity, noise.to(self.device), settings.solver, settings.steps)
        return self.tokenizer.decode(self.normaliser.invert(latents))
