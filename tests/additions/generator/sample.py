"""Images from normal latents."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from darkroom.artifacts.networks import SavedNetwork
from darkroom.models.generators.normal.settings import Sampling
from darkroom.models.tokenizers.protocol import Tokenizer
from darkroom.rng import normal


class Means(SavedNetwork):
    """A latent for each class."""

    made_by = ("generator", "train_generator")

    def __init__(self, classes: int, shape: Sequence[int]) -> None:
        super().__init__()
        self.config = {"classes": classes, "shape": list(shape)}
        self.means = nn.Parameter(torch.zeros(classes, *shape))

    def forward(self, labels: Tensor) -> Tensor:
        """Return the means of some classes, (N, C, H, W)."""
        return self.means[labels]


class NormalSampler:
    """Means and deviations, and the tokenizer that decodes latents."""

    def __init__(self, model: Means, std: Sequence[float], tokenizer: Tokenizer) -> None:
        self.model, self.tokenizer, self.classes = model, tokenizer, len(model.means)
        self.std = torch.tensor(std)[:, None, None]

    @classmethod
    def open(cls, folder: Path, manifest: Mapping[str, Any], tokenizer: Tokenizer, weights: str) -> "NormalSampler":
        """Return the sampler of a folder that `train_generator` wrote."""
        source = folder if weights == "ema" else folder / "raw"
        return cls(Means.from_pretrained(source), manifest["latent_std"], tokenizer)

    @property
    def device(self) -> torch.device:
        """The device of the means."""
        return self.model.means.device

    def to(self, device: torch.device) -> "NormalSampler":
        """Move to a device."""
        self.model.to(device)
        return self

    @torch.no_grad()
    def __call__(self, numbers: Sequence[int], labels: Tensor, seed: int, settings: Sampling) -> Tensor:
        """Return images, uint8 (N, C, H, W), from noise that follows from (seed, number)."""
        noise = torch.from_numpy(normal(seed, "sample/noise", numbers, self.model.means.shape[1:])).to(self.device)
        return self.tokenizer.decode(self.model(labels) + settings.temperature * self.std.to(self.device) * noise)
