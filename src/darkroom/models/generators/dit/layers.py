"""Layers of the transformer and of its text encoder: attention to the tokens of a text, a gated network."""

from einops import rearrange
from torch import Tensor, nn
from torch.nn import functional

from darkroom.models.fused import fused


class CrossAttention(nn.Module):
    """Attention of tokens to those of a text; in the transformer's blocks its output begins at zero (PixArt-α)."""

    def __init__(self, width: int, heads: int, qk_norm: bool = False) -> None:
        super().__init__()
        size, self.heads = width // heads, heads
        self.query = nn.Linear(width, width)
        self.key_value = fused(nn.Linear(width, 2 * width), 2)
        self.query_norm = nn.RMSNorm(size, eps=1e-6) if qk_norm else nn.Identity()
        self.key_norm = nn.RMSNorm(size, eps=1e-6) if qk_norm else nn.Identity()
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor, text: Tensor, inside: Tensor) -> Tensor:
        """Return (B, N, D) of tokens (B, N, D), those of texts (B, L, D), and which of these count, bool (B, L)."""
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
