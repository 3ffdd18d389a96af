"""Trains the diffusion transformer on latents, by flow matching."""

from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from darkroom.diffusion.flow import flow_matching_loss, interpolate, logit_normal_times
from darkroom.diffusion.guidance import guided
from darkroom.diffusion.samplers import sample
from darkroom.models.generators.data import GeneratorData
from darkroom.models.generators.dit.network import DiT, DiTConfig
from darkroom.models.generators.dit.sample import DiTSampler
from darkroom.models.generators.dit.settings import Diffusion, Sampling
from darkroom.models.generators.dit.settings import DiT as Settings
from darkroom.models.generators.evaluation import Evaluation
from darkroom.models.generators.normaliser import Normaliser
from darkroom.models.generators.recipe import GeneratorRecipe
from darkroom.models.tokenizers.batches import decode_all
from darkroom.models.tokenizers.protocol import Tokenizer
from darkroom.params.training import Training
from darkroom.random import derive, draws, normal
from darkroom.training.loop import seeded
from darkroom.training.recipe import Batch, Losses, Phase, Rows

_BANDS = 4  # of the time, in validation


class DiTRecipe(GeneratorRecipe):
    """L = E || v(x_t, t, y) - (noise - x_0) ||², some labels dropped.

    x_0 is sampled from the stored mean and logvar, or is the stored mean, or what the stored codes stand for.

    sampling: how grids and evaluations sample.
    codebook: of codes, the vector that each stands for, float32 (K, C).
    """

    name = "dit"
    model: DiT
    scale: dict[str, Any]

    def __init__(
        self,
        model: DiT,
        settings: Diffusion,
        seed: int,
        train: Rows,
        val: Rows,
        normaliser: Normaliser,
        tokenizer: Tokenizer,
        sampling: Sampling,
        evaluation: Evaluation | None = None,
        codebook: Tensor | None = None,
    ) -> None:
        self.model, self.settings, self.seed = model, settings, seed
        self.train, self.val = train, val
        self.normaliser, self.tokenizer, self.codebook = normaliser, tokenizer, codebook
        self.modules: dict[str, nn.Module] = {"dit": model}
        self.phases = (Phase("dit", self.loss),)
        self.blocks = list(model.blocks)
        self.evaluation_settings = sampling
        self.evaluation = evaluation
        self.evaluate_every = evaluation.every if evaluation else 0

    @classmethod
    def build(
        cls, settings: Settings, training: Training, data: GeneratorData, evaluation: Evaluation | None
    ) -> "DiTRecipe":
        """Return the recipe with its untrained network."""
        mean, std = data.latents.statistics
        if settings.diffusion.normalise == "principal":
            widest = data.latents.principal_deviation()
            std = [each * widest for each in std]
        channels, size, _ = data.tokenizer.latent_shape
        with seeded(derive(training.seed, "dit/weights")):
            model = DiT(DiTConfig(channels, size, len(data.catalog.classes), **settings.model.model_dump()))
        codebook = None if data.latents.codebook is None else torch.from_numpy(data.latents.codebook)
        recipe = cls(
            model,
            settings.diffusion,
            training.seed,
            data.train,
            data.val,
            Normaliser(mean, std),
            data.tokenizer,
            settings.sampling,
            evaluation,
            codebook,
        )
        recipe.scale = {"latent_mean": mean, "latent_std": std}
        return recipe

    @property
    def sampler(self) -> DiTSampler:
        """The network as it is, as a sampler of images."""
        return DiTSampler(self.model, self.normaliser, self.tokenizer)

    def facts(self) -> dict[str, Any]:
        """Return the scale of the latents."""
        return self.scale

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

    def preview(self) -> NDArray[np.uint8]:
        """Return ten images for each of the first ten classes, from the same noise each time.

        They are guided where labels were dropped: nothing else teaches what no class looks like.
        """
        device = next(self.model.parameters()).device
        classes = min(10, self.model.config.classes)
        labels = torch.arange(10 * classes, device=device) % classes
        shape = self.tokenizer.latent_shape
        noise = torch.from_numpy(normal(self.seed, "dit/preview", range(10 * classes), shape)).to(device)
        sampling = self.evaluation_settings
        guidance = sampling.guidance if self.settings.label_dropout else 1.0
        velocity = guided(self.model, labels, self.model.null_label, guidance)
        latents = self.normaliser.invert(sample(velocity, noise, sampling.solver, sampling.steps))
        return decode_all(self.tokenizer, latents, 10, device).numpy()  # ten at once: pixels take more than latents
