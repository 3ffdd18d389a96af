"""Inputs of transformers other than latents and codes: positions, conditions and texts; and shared layers."""

import torch
from einops import rearrange
from torch import Tensor, nn
from torch.nn import functional

from darkroom.diffusion.scalers import EmbeddingScaler
from darkroom.models.fused import fused


class CrossAttention(nn.Module):
    """Cross-attention of tokens to a text; in the transformer's blocks its output begins at zero (PixArt-α)."""

    def __init__(self, width: int, heads: int, qk_norm: bool = False) -> None:
        super().__init__()
        size, self.heads = width // heads, heads
        self.query = nn.Linear(width, width)
        self.key_value = fused(nn.Linear(width, 2 * width), 2)
        self.query_norm = nn.RMSNorm(size, eps=1e-6) if qk_norm else nn.Identity()
        self.key_norm = nn.RMSNorm(size, eps=1e-6) if qk_norm else nn.Identity()
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor, text: Tensor, inside: Tensor) -> Tensor:
        """Return (B, N, D) from tokens (B, N, D) and those of texts (B, L, D), where `inside`, bool (B, L), is true."""
        query = rearrange(self.query(x), "b n (h d) -> b h n d", h=self.heads)
        key, value = rearrange(self.key_value(text), "b l (two h d) -> two b h l d", two=2, h=self.heads)
        query, key = self.query_norm(query), self.key_norm(key)
        mixed = functional.scaled_dot_product_attention(query, key, value, attn_mask=inside[:, None, None])
        return self.out(rearrange(mixed, "b h n d -> b n (h d)"))


class SwiGLU(nn.Module):
    """A network whose hidden layer is gated: W2 (silu(W1 x) * V x)."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.gated = fused(nn.Linear(width, 2 * hidden), 2)
        self.out = nn.Linear(hidden, width)

    def forward(self, x: Tensor) -> Tensor:
        """Return tokens of the same width."""
        gate, value = self.gated(x).chunk(2, dim=-1)
        return self.out(functional.silu(gate) * value)


def sincos_positions(width: int, side: int) -> Tensor:
    """Return fixed positions of a side x side grid, row by row, (side², width) float32: of columns, then of rows.

    Half of the width each: sin(p ω_i) for all i, then cos(p ω_i), ω_i = 10000^(-i / (width / 4)), p the column in the
    first half and the row in the second, as in DiT's published weights (`get_2d_sincos_pos_embed`, whose comments say
    the opposite of its meshgrid). After Vaswani et al., 2017, arXiv 1706.03762.
    """
    angles = _angles(width // 4, side)
    return _on_grid(torch.cat([angles.sin(), angles.cos()], dim=1))


def rotary(size: int, side: int) -> Tensor:
    """Return the angles of rotary positions of a side x side grid, row by row, (side², size / 2) float32.

    Among the pairs of a head's `size` numbers, the first half turns by the column, the second by the row, at the
    frequencies 10000^(-i / (size / 4)).
    """
    return _on_grid(_angles(size // 4, side))


def _angles(count: int, side: int) -> Tensor:
    """Return p 10000^(-i / count) of each place p and frequency i, (side, count) float64."""
    frequencies = 10_000 ** -(torch.arange(count, dtype=torch.float64) / count)
    return torch.arange(side, dtype=torch.float64)[:, None] * frequencies


def _on_grid(of_place: Tensor) -> Tensor:
    """Return numbers of the places of an axis, (side, D), for a grid, (side², 2 D) float32: column, then row."""
    side = len(of_place)
    rows, columns = of_place[:, None].expand(-1, side, -1), of_place[None].expand(side, -1, -1)
    return rearrange(torch.cat([columns, rows], dim=-1), "h w d -> (h w) d").float()


def turned(x: Tensor, angles: Tensor) -> Tensor:
    """Return x (..., N, D) with each pair of numbers i and i + D / 2 turned by angles (N, D / 2), of x's dtype."""
    first, second = x.float().chunk(2, dim=-1)
    cos, sin = angles.cos(), angles.sin()
    return torch.cat([first * cos - second * sin, first * sin + second * cos], dim=-1).to(x.dtype)


class VectorEmbedding(nn.Module):
    """CLIP's embeddings, (N, D), to vectors, (N, width): standardised, or the learned null, then a two-layer network.

    As pooled texts enter SD3 (Esser et al., 2024, arXiv 2403.03206, section 4).

    mean, std: those of the elements of stored embeddings, saved with the weights.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, length: int, width: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(length))
        self.register_buffer("std", torch.ones(length))
        self.null = nn.Parameter(torch.zeros(length))
        self.mlp = nn.Sequential(nn.Linear(length, width), nn.SiLU(), nn.Linear(width, width))

    @torch.no_grad()
    def set_scaler(self, scaler: EmbeddingScaler) -> None:
        """Set mean and standard deviation of the elements of stored embeddings."""
        self.mean.copy_(scaler.mean)
        self.std.copy_(scaler.std)

    def forward(self, vectors: Tensor, keep: Tensor) -> Tensor:
        """Return a vector for each; that of the null where `keep`, bool (N,), is false."""
        unit = (vectors.float() - self.mean) / self.std
        return self.mlp(torch.where(keep[:, None], unit, self.null))


class TokenEmbedding(nn.Module):
    """CLIP's encodings of texts, (N, L, W), to tokens, (N, L, width): a two-layer network, or the learned null.

    As texts enter PixArt-α (Chen et al., 2023, arXiv 2310.00426).
    """

    def __init__(self, shape: tuple[int, int], width: int) -> None:
        super().__init__()
        self.null = nn.Parameter(torch.zeros(shape))
        self.mlp = nn.Sequential(nn.Linear(shape[1], width), nn.GELU(approximate="tanh"), nn.Linear(width, width))

    def forward(self, encodings: Tensor, keep: Tensor) -> tuple[Tensor, Tensor]:
        """Return the tokens, and which of them are attended to, bool (N, L): all of the null, or those of a text."""
        inside = (encodings != 0).any(dim=2) | ~keep[:, None]
        return self.mlp(torch.where(keep[:, None, None], encodings.float(), self.null)), inside


class CaptionEmbedding(nn.Module):
    """Tokens of captions, (N, L), to encodings, (N, L, width): a text encoder that is trained with the transformer.

    A learned vector per token and per place, then two pre-norm layers of attention in both directions (Vaswani et al.,
    2017, arXiv 1706.03762; Xiong et al., 2020, arXiv 2002.04745). Their mean is used like SD3's pooled texts.

    vocabulary: the numbers of the tokens of training captions, ascending, int64 (V,), saved with the weights;
        every other token is read as the unknown one, row 0 of `words`.
    """

    vocabulary: Tensor

    def __init__(self, length: int, known: int, width: int, heads: int, layers: int = 2) -> None:
        super().__init__()
        self.register_buffer("vocabulary", torch.arange(known))
        self.words = nn.Embedding(1 + known, width)
        self.positions = nn.Parameter(torch.zeros(length, width))
        self.layers = nn.ModuleList(CaptionLayer(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.null = nn.Parameter(torch.zeros(length, width))
        self.pooled = nn.Linear(width, width)

    def forward(self, tokens: Tensor, keep: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the encodings (N, L, width), which of them are attended to, bool (N, L), and their mean (N, width).

        All of the null, where `keep`, bool (N,), is false; those of a caption up to its end, its highest number.
        """
        places = torch.searchsorted(self.vocabulary, tokens).clamp(max=len(self.vocabulary) - 1)
        x = self.words(torch.where(self.vocabulary[places] == tokens, 1 + places, 0)) + self.positions
        inside = torch.arange(tokens.shape[1], device=tokens.device) <= tokens.argmax(dim=1, keepdim=True)
        for layer in self.layers:
            x = layer(x, inside)
        x = torch.where(keep[:, None, None], self.norm(x), self.null)
        inside = inside | ~keep[:, None]
        mean = (x * inside[:, :, None]).sum(dim=1) / inside.sum(dim=1, keepdim=True)
        return x, inside, self.pooled(mean)


class CaptionLayer(nn.Module):
    """A layer of the text encoder: x + attention(norm(x)), then x + network(norm(x))."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = CrossAttention(width, heads)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(approximate="tanh"), nn.Linear(4 * width, width))

    def forward(self, x: Tensor, inside: Tensor) -> Tensor:
        """Return (N, L, width) from tokens (N, L, width), attending where `inside`, bool (N, L), is true."""
        normed = self.norm1(x)
        x = x + self.attention(normed, normed, inside)
        return x + self.mlp(self.norm2(x))
