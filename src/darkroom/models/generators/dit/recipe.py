"""Trains the diffusion transformer on latents, by flow matching."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from darkroom.data.catalog import Catalog
from darkroom.data.latents import LatentShards
from darkroom.diffusion.flow import flow_matching_loss, interpolate, logit_normal_times
from darkroom.diffusion.guidance import guided
from darkroom.diffusion.samplers import sample
from darkroom.models.generators.dit.network import DiT
from darkroom.models.generators.dit.settings import Diffusion
from darkroom.models.generators.evaluation import Evaluation
from darkroom.models.generators.normaliser import Normaliser
from darkroom.models.tokenizers.batches import decode_all
from darkroom.models.tokenizers.protocol import Tokenizer
from darkroom.random import draws, normal
from darkroom.training.data import Positions, label_numbers, mirrored
from darkroom.training.recipe import Batch, Gather, Losses, Phase, Recipe, Rows

_PREVIEW_STEPS, _PREVIEW_GUIDANCE = 25, 1.5
_BANDS = 4  # of the time, in validation


class LabelledLatents:
    """Stored latents with their class numbers, `labels` int64 (N,).

    Latents are `mean` and `logvar` (N, C, H, W), or `mean` alone, float32 or bfloat16, as stored: they are widened on
    the device, where z is sampled; or `codes` int32 (N, H, W). Of the rows whose mirror image was encoded too, half are
    its latents in training. `seed` is the training's.
    """

    def __init__(self, shards: LatentShards, catalog: Catalog, seed: int = 0) -> None:
        self.shards, self.seed = shards, seed
        self.labels = label_numbers(shards.label_column, catalog, shards.keys_of, "`train_dit`")

    def __len__(self) -> int:
        return len(self.shards)

    def __getitems__(self, rows: Sequence[int], positions: Positions | None = None) -> dict[str, Any]:
        """Return the latents and class numbers of some rows, some of them mirrored where positions are given."""
        stored = self.shards.__getitems__(rows, mirrored(self.seed, self.shards.mirrors, rows, positions))
        tensors = {name: _tensor(value, self.shards.form) for name, value in stored.items()}
        return {**tensors, "labels": self.labels[list(rows)]}

    def keys(self, rows: Sequence[int]) -> list[str]:
        """Return the keys of some rows, by which a person finds the images."""
        return self.shards.keys_of(rows)


def _tensor(stored: NDArray[Any], form: str) -> Tensor:
    """Return stored elements as a tensor: NumPy holds a bfloat16 as its 16 bits, and torch indexes by no uint16."""
    if form == "codes":
        return torch.from_numpy(stored.astype(np.int32, copy=False))
    tensor = torch.from_numpy(stored)
    return tensor.view(torch.bfloat16) if stored.dtype == np.uint16 else tensor


class DiTRecipe(Recipe):
    """L = E || v(x_t, t, y) - (noise - x_0) ||², some labels dropped.

    x_0 is sampled from the stored mean and logvar, or is the stored mean, or what the stored codes stand for.

    codebook: of codes, the vector that each stands for, float32 (K, C).
    """

    def __init__(
        self,
        model: DiT,
        settings: Diffusion,
        seed: int,
        train: Rows,
        val: Rows,
        normaliser: Normaliser,
        tokenizer: Tokenizer,
        evaluation: Evaluation | None = None,
        codebook: Tensor | None = None,
    ) -> None:
        self.model, self.settings, self.seed = model, settings, seed
        self.train, self.val = train, val
        self.normaliser, self.tokenizer, self.codebook = normaliser, tokenizer, codebook
        self.modules: dict[str, nn.Module] = {"dit": model}
        self.phases = (Phase("dit", self.loss),)
        self.blocks = list(model.blocks)
        self.evaluation = evaluation
        self.evaluate_every = evaluation.every if evaluation else 0

    def loss(self, batch: Batch) -> Losses:
        """Return the loss with randomness that follows from each image's place in the training sequence."""
        return {"loss": self._losses(batch, "train", self.settings.label_dropout)[0].mean()}

    def validate(self, batch: Batch) -> dict[str, Tensor]:
        """Return each image's loss, also by bands of the time; randomness follows from its row, and no label drops.

        `loss_time_25_50` is the loss of those images whose time lies in [0.25, 0.5).
        """
        losses, time = self._losses(batch, "val", label_dropout=0.0)
        edges = [band / _BANDS for band in range(_BANDS + 1)]
        bands = {
            f"loss_time_{100 * low:.0f}_{100 * high:.0f}": losses[(time >= low) & ((time < high) | (high == 1))]
            for low, high in pairwise(edges)
        }
        return {"loss": losses, **bands}

    def _losses(self, batch: Batch, stream: str, label_dropout: float) -> tuple[Tensor, Tensor]:
        """Return loss and time of each image, (N,) both."""
        mean, labels = self._mean(batch), batch.data["labels"]
        size = mean[0].numel()
        # Of each position: the posterior's noise, the path's, the time; then the time again, for the other law, and
        # whether the label drops. The same for all forms of latents, which are then compared under the same noise.
        normals, uniforms = draws(self.seed, f"dit/{stream}", batch.positions.tolist(), 2 * size + 1, 2)
        times = self._times(normals[:, -1], uniforms[:, 0])
        posterior, noise = (
            torch.from_numpy(normals[:, at : at + size]).to(mean.device).view_as(mean) for at in (0, size)
        )
        time = torch.from_numpy(times).to(mean.device)
        dropped = torch.from_numpy(uniforms[:, 1] < label_dropout).to(mean.device)
        if "logvar" in batch.data:
            mean = mean + (0.5 * batch.data["logvar"].float()).exp() * posterior
        data = self.normaliser(mean)
        labels = torch.where(dropped, self.model.null_label, labels)
        prediction = self.modules["dit"](interpolate(data, noise, time), time, labels)
        return flow_matching_loss(prediction, data, noise), time

    def _mean(self, batch: Batch) -> Tensor:
        """Return the means of the latents, or what their codes stand for, float32 (N, C, H, W)."""
        if "codes" not in batch.data:
            return batch.data["mean"].float()  # exact: bfloat16 is a part of float32
        assert self.codebook is not None  # it lies beside the codes
        codes = batch.data["codes"]
        self.codebook = self.codebook.to(codes.device)
        return functional.embedding(codes, self.codebook).permute(0, 3, 1, 2).contiguous()

    def _times(self, normals: NDArray[np.float32], uniforms: NDArray[np.float64]) -> NDArray[np.float32]:
        if self.settings.time == "uniform":
            return uniforms.astype(np.float32)
        return logit_normal_times(normals, self.settings.time_mean, self.settings.time_std)

    def evaluate(self, rank: int, count: int, gather: Gather) -> dict[str, float]:
        """Return the scores of `train_dit.evaluate`."""
        assert self.evaluation is not None  # the loop asks where `evaluate_every` is above 0
        return self.evaluation.scores(self.model, rank, count, gather)

    def preview(self) -> NDArray[np.uint8]:
        """Return ten images for each of the first ten classes, from the same noise each time.

        They are guided where labels were dropped: nothing else teaches what no class looks like.
        """
        device = next(self.model.parameters()).device
        classes = min(10, self.model.config.classes)
        labels = torch.arange(10 * classes, device=device) % classes
        shape = self.tokenizer.latent_shape
        noise = torch.from_numpy(normal(self.seed, "dit/preview", range(10 * classes), shape)).to(device)
        guidance = _PREVIEW_GUIDANCE if self.settings.label_dropout else 1.0
        velocity = guided(self.model, labels, self.model.null_label, guidance)
        latents = self.normaliser.invert(sample(velocity, noise, "euler", _PREVIEW_STEPS))
        return decode_all(self.tokenizer, latents, 10, device).numpy()  # ten at once: pixels take more than latents
