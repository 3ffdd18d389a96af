"""A classifier of noisy latents: a small vision transformer that knows the time."""

from dataclasses import dataclass
from typing import Any, Self

import torch
from einops import rearrange
from torch import Tensor, nn

from darkroom.artifacts.networks import SavedNetwork
from darkroom.models.generators.dit.config import DiTConfig
from darkroom.models.generators.dit.embeddings import sincos_positions
from darkroom.models.generators.dit.network import Block, TimeEmbedding


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

    Dhariwal and Nichol, 2021, arXiv 2105.05233, take half a U-Net, section 4.
    """

    made_by = ("classifier of noisy latents", "train_classifier")

    positions: Tensor

    def __init__(self, config: ClassifierConfig) -> None:
        super().__init__()
        self.config = config
        width = config.width
        shape = DiTConfig(config.channels, config.size, config.classes, width, config.depth, config.heads, config.patch)
        self.patches = nn.Conv2d(config.channels, width, config.patch, stride=config.patch)
        self.register_buffer("positions", sincos_positions(width, config.size // config.patch), persistent=False)
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
            timesteps: (B,), from 0, no noise, to about 1000, noise alone.
        """
        condition = self.time(timesteps)
        tokens = rearrange(self.patches(x), "b d h w -> b (h w) d") + self.positions
        for block in self.blocks:
            tokens, _ = block(tokens, condition)
        return self.head(self.norm(tokens).mean(1))

    def log_probability(self, x: Tensor, timesteps: Tensor, labels: Tensor) -> Tensor:
        """Return log p(y | x_t) of the labels, int64 (B,), of each image, (B,), float32."""
        logits = self(x, timesteps).float().log_softmax(1)
        return torch.gather(logits, 1, labels[:, None])[:, 0]

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Return an untrained network."""
        return cls(ClassifierConfig(**config))
