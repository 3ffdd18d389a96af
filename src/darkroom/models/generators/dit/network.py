"""The diffusion transformer (Peebles and Xie, 2023, "Scalable diffusion models with transformers", 2212.09748)."""

import math
from dataclasses import dataclass
from typing import Any, Self

import torch
from einops import rearrange
from torch import Tensor, nn
from torch.nn import functional

from darkroom.artifacts.networks import SavedNetwork


@dataclass(frozen=True)
class DiTConfig:
    """The shape of a DiT.

    classes: of real classes; the null label of guidance is number `classes`.
    learned_variance: whether the output has a variance behind the prediction, in as many channels again.
    """

    channels: int
    size: int
    classes: int
    width: int
    depth: int
    heads: int
    patch: int
    mlp_ratio: float = 4.0
    learned_variance: bool = False


# ---------------------------------------------------------------------------------------------------------------------
# Embeddings


def sincos_positions(width: int, side: int) -> Tensor:
    """Return fixed positions of a side x side grid, row by row, (side², width) float32: of columns, then of rows.

    Half of the width each: sin(p ω_i) for all i, then cos(p ω_i), ω_i = 10000^(-i / (width / 4)), p the column in the
    first half and the row in the second, as in DiT's published weights (`get_2d_sincos_pos_embed`, whose comments say
    the opposite of its meshgrid). After Vaswani et al., 2017, arXiv 1706.03762.
    """
    frequencies = 10_000 ** -(torch.arange(width // 4, dtype=torch.float64) / (width // 4))
    angles = torch.arange(side, dtype=torch.float64)[:, None] * frequencies  # (side, width / 4)
    one = torch.cat([angles.sin(), angles.cos()], dim=1)  # (side, width / 2)
    rows, columns = one[:, None].expand(-1, side, -1), one[None].expand(side, -1, -1)
    return rearrange(torch.cat([columns, rows], dim=-1), "h w d -> (h w) d").float()


class TimeEmbedding(nn.Module):
    """Timesteps from 0 to about 1000, (N,), to a vector, (N, width): 256 sinusoids, then a two-layer network."""

    def __init__(self, width: int, frequencies: int = 256) -> None:
        super().__init__()
        half = frequencies // 2
        rates = torch.exp(-math.log(10_000) * torch.arange(half, dtype=torch.float64) / half)
        self.rates: Tensor
        self.register_buffer("rates", rates.float(), persistent=False)
        self.mlp = nn.Sequential(nn.Linear(frequencies, width), nn.SiLU(), nn.Linear(width, width))

    def forward(self, timesteps: Tensor) -> Tensor:
        """Return the embedding of each timestep."""
        angles = timesteps[:, None] * self.rates
        return self.mlp(torch.cat([angles.cos(), angles.sin()], dim=1))


# ---------------------------------------------------------------------------------------------------------------------
# Blocks


def _modulate(x: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
    """Return x * (1 + scale) + shift, with one shift and scale an image: (B, N, D), (B, D), (B, D)."""
    return x * (1 + scale[:, None]) + shift[:, None]


class Block(nn.Module):
    """A transformer block with adaLN-Zero: the condition shifts, scales and gates, and all gates begin at zero."""

    def __init__(self, width: int, heads: int, mlp_ratio: float) -> None:
        super().__init__()
        hidden = int(width * mlp_ratio)
        self.heads = heads
        self.norm1 = nn.LayerNorm(width, eps=1e-6, elementwise_affine=False)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width, eps=1e-6, elementwise_affine=False)
        self.mlp = nn.Sequential(nn.Linear(width, hidden), nn.GELU(approximate="tanh"), nn.Linear(hidden, width))
        self.modulation = nn.Sequential(nn.SiLU(), nn.Linear(width, 6 * width))

    def forward(self, x: Tensor, condition: Tensor) -> Tensor:
        """Return the tokens after attention and network: x (B, N, D), condition (B, D)."""
        shift1, scale1, gate1, shift2, scale2, gate2 = self.modulation(condition).chunk(6, dim=1)
        x = x + gate1[:, None] * self._attention(_modulate(self.norm1(x), shift1, scale1))
        return x + gate2[:, None] * self.mlp(_modulate(self.norm2(x), shift2, scale2))

    def _attention(self, x: Tensor) -> Tensor:
        query, key, value = rearrange(self.qkv(x), "b n (three h d) -> three b h n d", three=3, h=self.heads)
        mixed = functional.scaled_dot_product_attention(query, key, value)
        return self.out(rearrange(mixed, "b h n d -> b n (h d)"))


class Head(nn.Module):
    """The last layer: a modulated norm and a linear map from tokens to patches, zero at the start."""

    def __init__(self, width: int, outputs: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width, eps=1e-6, elementwise_affine=False)
        self.modulation = nn.Sequential(nn.SiLU(), nn.Linear(width, 2 * width))
        self.linear = nn.Linear(width, outputs)

    def forward(self, x: Tensor, condition: Tensor) -> Tensor:
        """Return (B, N, outputs) from tokens (B, N, D) and conditions (B, D)."""
        shift, scale = self.modulation(condition).chunk(2, dim=1)
        return self.linear(_modulate(self.norm(x), shift, scale))


# ---------------------------------------------------------------------------------------------------------------------
# The model


class DiT(SavedNetwork):
    """A transformer over patches of a latent, conditioned on time and class."""

    made_by = ("transformer", "train_generator")

    positions: Tensor

    def __init__(self, config: DiTConfig) -> None:
        super().__init__()
        self.config = config
        self.patches = nn.Conv2d(config.channels, config.width, config.patch, stride=config.patch)
        # Saved with the weights, which are worth nothing with another table.
        self.register_buffer("positions", sincos_positions(config.width, config.size // config.patch))
        self.register_load_state_dict_pre_hook(_with_positions)
        self.time = TimeEmbedding(config.width)
        self.labels = nn.Embedding(config.classes + 1, config.width)
        self.blocks = nn.ModuleList(Block(config.width, config.heads, config.mlp_ratio) for _ in range(config.depth))
        self.head = Head(config.width, config.patch**2 * config.channels * (1 + config.learned_variance))
        self._initialise()

    def _initialise(self) -> None:
        """Xavier-uniform linears, std 0.02 for the condition's tables, zero for every gate and for the last layer."""
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                nn.init.zeros_(module.bias)
        nn.init.xavier_uniform_(self.patches.weight.view(self.patches.weight.shape[0], -1))
        nn.init.zeros_(self.patches.bias)  # type: ignore[arg-type]
        nn.init.normal_(self.labels.weight, std=0.02)
        for name, parameter in self.named_parameters():
            if name.startswith("time.mlp") and name.endswith("weight"):
                nn.init.normal_(parameter, std=0.02)
            if "modulation" in name or name.startswith("head.linear"):
                nn.init.zeros_(parameter)

    @property
    def null_label(self) -> int:
        """The label that stands for no label: the last row of the table."""
        return self.config.classes

    def forward(self, x: Tensor, timesteps: Tensor, labels: Tensor) -> Tensor:
        """Return the prediction for noisy latents.

        Args:
            x: latents, (B, C, S, S), normalised to about unit variance.
            timesteps: (B,), from 0, no noise, to about 1000, noise alone.
            labels: class numbers, (B,), int64, or `null_label`.

        Returns:
            (B, C, S, S), what the objective asks for; with a learned variance (B, 2 C, S, S).
        """
        condition = self.time(timesteps) + self.labels(labels)  # (B, D)
        tokens = rearrange(self.patches(x), "b d h w -> b (h w) d") + self.positions
        for block in self.blocks:
            tokens = block(tokens, condition)
        side, patch = self.config.size // self.config.patch, self.config.patch
        patches = self.head(tokens, condition)
        return rearrange(patches, "b (h w) (p q c) -> b c (h p) (w q)", h=side, w=side, p=patch, q=patch)

    def own_names(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return a file's tensors with the table of positions that they were trained with.

        Files without one are of the time before it was saved, when rows came before columns.
        """
        width, side = self.config.width, self.config.size // self.config.patch
        return {"positions": sincos_positions(width, side).roll(width // 2, dims=1), **tensors}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Return an untrained network."""
        return cls(DiTConfig(**config))


def _with_positions(model: nn.Module, state: dict[str, Tensor], prefix: str, *_: object) -> None:
    """Let `load_state_dict` take what was saved without a table of positions: `DiT.own_names`."""
    assert isinstance(model, DiT)
    state.setdefault(f"{prefix}positions", model.own_names({})["positions"])
