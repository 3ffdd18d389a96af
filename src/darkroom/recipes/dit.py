"""Trains the diffusion transformer on latents, by flow matching."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from darkroom.data.catalog import Catalog
from darkroom.data.latents import LatentShards
from darkroom.diffusion.flow import flow_matching_loss, interpolate, logit_normal_times, uniform_times
from darkroom.diffusion.samplers import sample
from darkroom.generators.dit import DiT
from darkroom.generators.guidance import guided
from darkroom.generators.normaliser import Normaliser
from darkroom.random import normal, uniform
from darkroom.recipes.data import label_numbers
from darkroom.schemas.train_dit import Diffusion
from darkroom.tokenizers.batches import decode_all
from darkroom.tokenizers.protocol import Tokenizer
from darkroom.training.recipe import Batch, Losses, Phase

_PREVIEW_STEPS, _PREVIEW_GUIDANCE = 25, 1.5


class LabelledLatents:
    """Stored latents with their class numbers: `mean` and `logvar` float32 (N, C, H, W), `labels` int64 (N,)."""

    def __init__(self, shards: LatentShards, catalog: Catalog) -> None:
        self.shards = shards
        self.labels = label_numbers(shards.labels, catalog)

    def __len__(self) -> int:
        return len(self.shards)

    def __getitems__(self, rows: Sequence[int]) -> dict[str, Any]:
        """Return the latents and class numbers of some rows."""
        return {**self.shards.__getitems__(rows), "labels": self.labels[list(rows)]}


class DiTRecipe:
    """L = E || v(x_t, t, y) - (noise - x_0) ||², x_0 sampled from the stored mean and logvar, some labels dropped."""

    def __init__(
        self,
        model: DiT,
        settings: Diffusion,
        seed: int,
        train: LabelledLatents,
        val: LabelledLatents,
        normaliser: Normaliser,
        tokenizer: Tokenizer,
    ) -> None:
        self.model, self.settings, self.seed = model, settings, seed
        self.train, self.val = train, val
        self.normaliser, self.tokenizer = normaliser, tokenizer
        self.modules: dict[str, nn.Module] = {"dit": model}
        self.phases = (Phase("dit", self.loss),)

    def loss(self, batch: Batch) -> Losses:
        """Return the loss with randomness that follows from each image's place in the training sequence."""
        dropped = uniform(self.seed, "dit/train/drop", batch.positions.tolist()) < self.settings.label_dropout
        device = batch.data["labels"].device
        labels = torch.where(torch.from_numpy(dropped).to(device), self.model.null_label, batch.data["labels"])
        return self._losses(batch, labels, "train")

    def validate(self, batch: Batch) -> Losses:
        """Return the loss with randomness that follows from each image's row, and no label dropped."""
        return self._losses(batch, batch.data["labels"], "val")

    def _losses(self, batch: Batch, labels: Tensor, stream: str) -> Losses:
        mean, logvar = batch.data["mean"], batch.data["logvar"]
        device, shape = mean.device, tuple(mean.shape[1:])
        positions = batch.positions.tolist()
        posterior = torch.from_numpy(normal(self.seed, f"dit/{stream}/posterior", positions, shape)).to(device)
        noise = torch.from_numpy(normal(self.seed, f"dit/{stream}/noise", positions, shape)).to(device)
        time = torch.from_numpy(self._times(batch.positions, f"dit/{stream}/time")).to(device)
        data = self.normaliser(mean + (0.5 * logvar).exp() * posterior)
        prediction = self.modules["dit"](interpolate(data, noise, time), time, labels)
        return {"loss": flow_matching_loss(prediction, data, noise).mean()}

    def _times(self, positions: NDArray[np.int64], stream: str) -> NDArray[np.float32]:
        if self.settings.time == "uniform":
            return uniform_times(self.seed, stream, positions)
        return logit_normal_times(self.seed, stream, positions, self.settings.time_mean, self.settings.time_std)

    def preview(self) -> NDArray[np.uint8]:
        """Return ten images for each of the first ten classes, from the same noise each time."""
        device = next(self.model.parameters()).device
        classes = min(10, self.model.config.classes)
        labels = torch.arange(10 * classes, device=device) % classes
        shape = self.tokenizer.latent_shape
        noise = torch.from_numpy(normal(self.seed, "dit/preview", range(10 * classes), shape)).to(device)
        velocity = guided(self.model, labels, self.model.null_label, _PREVIEW_GUIDANCE)
        latents = self.normaliser.invert(sample(velocity, noise, "euler", _PREVIEW_STEPS))
        return decode_all(self.tokenizer, latents, 10, device).numpy()  # ten at once: pixels take more than latents
