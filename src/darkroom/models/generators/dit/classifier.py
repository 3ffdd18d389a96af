"""The classifier of noisy latents, a small vision transformer conditioned on the time. It is never an evaluator."""

from dataclasses import dataclass

import torch
from einops import rearrange
from torch import Tensor, nn
from torch.nn import functional

from darkroom.artifacts.networks import SavedNetwork
from darkroom.device import to_device
from darkroom.diffusion.objectives import objective_of
from darkroom.diffusion.scalers import LatentScaler
from darkroom.models.evaluators.extractor import class_scores
from darkroom.models.generators.data import by_time, drawn_latents
from darkroom.models.generators.dit.config import DiTConfig
from darkroom.models.generators.dit.network import Block, TimeEmbedding
from darkroom.models.generators.dit.settings import DiTDiffusion
from darkroom.models.generators.embeddings import sincos_positions
from darkroom.rng import random_numbers
from darkroom.training.recipe import Batch, IndexedDataset, Losses, Phase, Recipe


@dataclass(frozen=True)
class ClassifierConfig:
    """The shape of a classifier of latents (C, S, S)."""

    channels: int
    size: int
    classes: int
    width: int
    depth: int
    heads: int
    patch: int


class Classifier(SavedNetwork):
    """log p(y | x_t) of every class y: the blocks of a DiT, conditioned on the time alone, and the mean of its tokens.

    Dhariwal and Nichol, 2021, arXiv 2105.05233, section 4, use half a U-Net.
    """

    shape = ClassifierConfig
    made_by = ("classifier of noisy latents", "train_classifier")

    positions: Tensor

    def __init__(self, config: ClassifierConfig) -> None:
        super().__init__()
        self.config = config
        width = config.width
        shape = DiTConfig(config.channels, config.size, config.classes, width, config.depth, config.heads, config.patch)
        self.patches = nn.Conv2d(config.channels, width, config.patch, stride=config.patch)
        self.register_buffer("positions", sincos_positions(width, shape.side), persistent=False)
        self.time = TimeEmbedding(width)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(config.depth))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, config.classes)
        for name, parameter in self.named_parameters():
            if "modulation" in name:
                nn.init.zeros_(parameter)
            elif parameter.ndim == 2:
                nn.init.xavier_uniform_(parameter)

    def forward(self, x: Tensor, timesteps: Tensor) -> Tensor:
        """Return logits, (B, classes).

        Args:
            x: noisy latents, (B, C, S, S), normalised as the generator's.
            timesteps: (B,), from 0, no noise, to about 1000, only noise.
        """
        condition = self.time(timesteps)
        if gap := -self.config.size % self.config.patch:
            x = functional.pad(x, (0, gap, 0, gap))
        tokens = rearrange(self.patches(x), "b d h w -> b (h w) d") + self.positions
        for block in self.blocks:
            tokens = block(tokens, condition)
        return self.head(self.norm(tokens).mean(1))

    def log_probability(self, x: Tensor, timesteps: Tensor, labels: Tensor) -> Tensor:
        """Return log p(y | x_t) of the labels, int64 (B,), of each image, (B,), float32."""
        logits = self(x, timesteps).float().log_softmax(1)
        return torch.gather(logits, 1, labels[:, None])[:, 0]


class ClassifierRecipe(Recipe):
    """L = -log p(y | x_t), x_t as the generator's, t uniform over its times; `diffusion` and `scaler` are its own."""

    def __init__(
        self,
        model: Classifier,
        diffusion: DiTDiffusion,
        seed: int,
        train: IndexedDataset,
        val: IndexedDataset,
        scaler: LatentScaler,
    ) -> None:
        self.model, self.seed, self.scaler = model, seed, scaler
        self.objective = objective_of(diffusion.model_copy(update={"time": "uniform"}), diffusion.timesteps)
        self.train, self.val = train, val
        self.modules: dict[str, nn.Module] = {"classifier": model}
        self.phases = (Phase("classifier", self.loss),)
        self.blocks = list(model.blocks)

    def loss(self, batch: Batch) -> Losses:
        """Return the cross-entropy and the accuracy."""
        scores, _ = self._scores(batch, "train")
        return {name: values.mean() for name, values in scores.items()}

    def validate(self, batch: Batch) -> dict[str, Tensor]:
        """Return cross-entropy and accuracy of each image, (N,), the accuracy also by bands of the time, `by_time`."""
        scores, time = self._scores(batch, "val")
        return {**scores, **by_time("accuracy", scores["accuracy"], time)}

    def _scores(self, batch: Batch, stream: str) -> tuple[dict[str, Tensor], Tensor]:
        """Return the scores and the time of each image, (N,), the time as a fraction of the way to noise."""
        count, positions, labels = 2 * batch.data["mean"][0].numel(), batch.positions.tolist(), batch.data["labels"]
        normals, uniforms = random_numbers(self.seed, f"classifier/{stream}", positions, count, 1)
        latents, noise = drawn_latents(batch.data, normals)
        time = to_device(self.objective.times(uniforms[:, 0]), latents.device)
        x = self.objective.add_noise(self.scaler(latents), noise, time)
        logits = self.modules["classifier"](x, self.objective.timesteps(time))
        return class_scores(logits, labels), time / self.objective.duration
