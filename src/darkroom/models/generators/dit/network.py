"""The diffusion transformer (Peebles and Xie, 2023, "Scalable diffusion models with transformers", 2212.09748)."""

import math
from pathlib import Path

import torch
from einops import rearrange
from torch import Tensor, nn
from torch.nn import functional

from darkroom.artifacts.networks import SavedNetwork
from darkroom.errors import DarkroomError
from darkroom.models.fused import fused
from darkroom.models.generators.conditions import Captioned, Condition, Embedded
from darkroom.models.generators.dit.checkpoints import SWITCHES, read_published, switch_of
from darkroom.models.generators.dit.config import DiTConfig
from darkroom.models.generators.dit.published import ours_from_sit
from darkroom.models.generators.embeddings import (
    CaptionEmbedding,
    CrossAttention,
    SwiGLU,
    TokenEmbedding,
    VectorEmbedding,
    rotary,
    sincos_positions,
    turned,
)


def _modulate(x: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
    """Return x * (1 + scale) + shift, with one shift and scale per image: (B, N, D), (B, D), (B, D)."""
    return x * (1 + scale[:, None]) + shift[:, None]


def _norm(config: DiTConfig) -> nn.Module:
    kind = nn.LayerNorm if config.norm == "layer" else nn.RMSNorm
    return kind(config.width, eps=1e-6, elementwise_affine=False)


def _mlp(config: DiTConfig) -> nn.Module:
    hidden = max(1, round(config.width * config.mlp_ratio))
    if config.mlp == "swiglu":
        return SwiGLU(config.width, max(8, 8 * round(hidden / 12)))  # 2/3, a multiple of 8
    return nn.Sequential(nn.Linear(config.width, hidden), nn.GELU(approximate="tanh"), nn.Linear(hidden, config.width))


class Block(nn.Module):
    """A transformer block with adaLN-Zero: the condition shifts, scales and gates, and all gates begin at zero."""

    def __init__(self, config: DiTConfig) -> None:
        super().__init__()
        width, size = config.width, config.width // config.heads
        self.heads = config.heads
        self.norm1 = _norm(config)
        self.qkv = fused(nn.Linear(width, 3 * width), 3)
        self.query_norm = nn.RMSNorm(size, eps=1e-6) if config.qk_norm else nn.Identity()
        self.key_norm = nn.RMSNorm(size, eps=1e-6) if config.qk_norm else nn.Identity()
        self.out = nn.Linear(width, width)
        self.norm2 = _norm(config)
        self.mlp = _mlp(config)
        self.dropout = nn.Dropout(config.dropout)
        self.modulation = nn.Sequential(nn.SiLU(), fused(nn.Linear(width, 6 * width), 6))
        attends = config.text_shape is not None or config.caption_shape is not None
        self.cross = CrossAttention(width, config.heads, config.qk_norm) if attends else None

    def forward(
        self, x: Tensor, condition: Tensor, angles: Tensor | None = None, text: tuple[Tensor, Tensor] | None = None
    ) -> Tensor:
        """Return the tokens after attention and network.

        Args:
            x: tokens, (B, N, D).
            condition: (B, D).
            angles: of the rotary positions, (N, D / heads / 2), or None.
            text: tokens (B, L, D) that the block attends to, and which of them count, bool (B, L); None: no text.
        """
        shift1, scale1, gate1, shift2, scale2, gate2 = self.modulation(condition).chunk(6, dim=1)
        mixed = self._attention(_modulate(self.norm1(x), shift1, scale1), angles)
        x = x + gate1[:, None] * self.dropout(mixed)
        if self.cross is not None:
            assert text is not None
            x = x + self.dropout(self.cross(x, *text))
        return x + gate2[:, None] * self.dropout(self.mlp(_modulate(self.norm2(x), shift2, scale2)))

    def _attention(self, x: Tensor, angles: Tensor | None) -> Tensor:
        query, key, value = rearrange(self.qkv(x), "b n (three h d) -> three b h n d", three=3, h=self.heads)
        query, key = self.query_norm(query), self.key_norm(key)
        if angles is not None:
            query, key = turned(query, angles), turned(key, angles)
        mixed = functional.scaled_dot_product_attention(query, key, value)
        return self.out(rearrange(mixed, "b h n d -> b n (h d)"))


class Head(nn.Module):
    """The last layer: a modulated norm and a linear map from tokens to patches, zero at the start."""

    def __init__(self, config: DiTConfig, outputs: int) -> None:
        super().__init__()
        self.norm = _norm(config)
        self.modulation = nn.Sequential(nn.SiLU(), fused(nn.Linear(config.width, 2 * config.width), 2))
        self.linear = nn.Linear(config.width, outputs)

    def forward(self, x: Tensor, condition: Tensor) -> Tensor:
        """Return (B, N, outputs) from tokens (B, N, D) and conditions (B, D)."""
        shift, scale = self.modulation(condition).chunk(2, dim=1)
        return self.linear(_modulate(self.norm(x), shift, scale))


class TimeEmbedding(nn.Module):
    """Timesteps from 0 to about 1000, (N,), to a vector, (N, width): 256 sinusoids, then a two-layer network."""

    def __init__(self, width: int, frequencies: int = 256) -> None:
        super().__init__()
        half = frequencies // 2
        # In float32, as published weights were trained: the last bit of a rate moves outputs at timestep 999 by 1e-5.
        rates = torch.exp(-math.log(10_000) * torch.arange(half, dtype=torch.float32) / half)
        self.rates: Tensor
        self.register_buffer("rates", rates, persistent=False)
        self.mlp = nn.Sequential(nn.Linear(frequencies, width), nn.SiLU(), nn.Linear(width, width))

    def forward(self, timesteps: Tensor) -> Tensor:
        """Return the embedding of each timestep."""
        angles = timesteps[:, None] * self.rates
        return self.mlp(torch.cat([angles.cos(), angles.sin()], dim=1))


# Parameters that begin with the deviation 0.02.
_SMALL = ("time.mlp", "interval.mlp", "vector.mlp", "vector.null", "text.mlp", "text.null")
_OF_CAPTIONS = ("caption.words", "caption.positions", "caption.null", "caption.pooled")


class DiT(SavedNetwork):
    """A transformer over patches of a latent, conditioned on time, and on a class or the input `condition` names."""

    shape = DiTConfig
    made_by = ("transformer", "train_generator")
    pickles = (".pt",)

    positions: Tensor
    angles: Tensor
    sit = False  # whether published initial weights are those of a SiT

    def __init__(self, config: DiTConfig) -> None:
        super().__init__()
        self.config, self.side = config, config.side
        narrow, wide = config.patch_bottleneck, config.width
        self.patches = nn.Conv2d(config.channels, narrow or wide, config.patch, stride=config.patch, bias=not narrow)
        self.widened = nn.Linear(narrow, wide) if narrow else nn.Identity()
        # Saved with the weights, which need this table.
        self.register_buffer("positions", sincos_positions(config.width, self.side))
        self.time = TimeEmbedding(config.width)
        if config.two_times:
            self.interval = TimeEmbedding(config.width)
        if config.condition == "class":
            self.labels = nn.Embedding(config.classes + 1, config.width)
        if config.embed_dim:
            self.vector = VectorEmbedding(config.embed_dim, config.width)
        if config.text_shape is not None:
            self.text = TokenEmbedding(config.text_shape, config.width)
        if config.caption_shape is not None:
            self.caption = CaptionEmbedding(*config.caption_shape, config.width, config.heads)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.depth))
        if config.rope:
            angles = rotary(config.width // config.heads, self.side)
            self.register_buffer("angles", angles, persistent=False)
        self.head = Head(config, config.patch**2 * config.channels * (1 + config.learned_variance))
        self._initialise()

    def _initialise(self) -> None:
        """Xavier-uniform linears, std 0.02 for the condition's tables, zero for every gate and for the last layer."""
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                nn.init.zeros_(module.bias)
        nn.init.xavier_uniform_(self.patches.weight.view(self.patches.weight.shape[0], -1))
        if self.patches.bias is not None:
            nn.init.zeros_(self.patches.bias)
        if self.config.condition == "class":
            nn.init.normal_(self.labels.weight, std=0.02)
        for name, parameter in self.named_parameters():
            if name.startswith(_SMALL + _OF_CAPTIONS) and "bias" not in name:
                nn.init.normal_(parameter, std=0.02)
            if "modulation" in name or name.startswith("head.linear") or "cross.out" in name:
                nn.init.zeros_(parameter)

    @property
    def null_label(self) -> int:
        """The label for no label: the last row of the table."""
        return self.config.classes

    def forward(self, x: Tensor, timesteps: Tensor, condition: Condition) -> Tensor:
        """Return the prediction for noisy latents.

        Args:
            x: latents, (B, C, S, S), normalised to about unit variance.
            timesteps: (B,), from 0, no noise, to about 1000, only noise; with two times (B, 2), see `MeanFlow`.
            condition: class numbers, (B,), int64, or `null_label`; CLIP embeddings of images or texts; captions; or
                None.

        Returns:
            (B, C, S, S), the objective's target; with a learned variance (B, 2 C, S, S).
        """
        if self.config.two_times:
            vector = self.time(timesteps[:, 0]) + self.interval(timesteps[:, 1])  # (B, D)
        else:
            vector = self.time(timesteps)
        text = None
        if isinstance(condition, Embedded):
            vector = vector + self.vector(condition.vector, condition.keep)
            if condition.tokens is not None:
                text = self.text(condition.tokens, condition.keep)
        elif isinstance(condition, Captioned):
            tokens, inside, pooled = self.caption(condition.tokens, condition.keep)
            vector, text = vector + pooled, (tokens, inside)
        elif condition is not None:
            vector = vector + self.labels(condition)
        size, side, patch = self.config.size, self.side, self.config.patch
        if gap := side * patch - size:
            x = functional.pad(x, (0, gap, 0, gap))
        tokens = self.widened(rearrange(self.patches(x), "b d h w -> b (h w) d")) + self.positions
        for block in self.blocks:
            tokens = block(tokens, vector, self.angles if self.config.rope else None, text)
        patches = self.head(tokens, vector)
        output = rearrange(patches, "b (h w) (p q c) -> b c (h p) (w q)", h=side, w=side, p=patch, q=patch)
        return output[..., :size, :size] if gap else output

    def own_weights(self, path: Path) -> dict[str, Tensor] | None:
        """Return published weights, of the paper's code or of diffusers, under our names; None: another kind of file.

        Raises:
            DarkroomError: see `read_published`; or this network has parts or heads that the published one lacks.
        """
        published = read_published(path)
        if published is None:
            return None
        if switch := switch_of(self.config):
            name, value = switch
            raise DarkroomError(
                f"{path} is a published DiT trained with {name} {SWITCHES[name]}: set "
                f"`train_generator.dit.model.{name}` to that, not {value}."
            )
        if published.heads is not None and published.heads != self.config.heads:
            raise DarkroomError(
                f"{path} has {published.heads} heads: set `train_generator.dit.model.heads` to {published.heads}, not "
                f"{self.config.heads}."
            )
        width = published.tensors["patches.weight"].shape[0]
        tensors = ours_from_sit(published.tensors, path) if self.sit else published.tensors
        return {"positions": sincos_positions(width, self.side), **tensors}
