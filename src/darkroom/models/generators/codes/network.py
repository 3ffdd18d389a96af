"""A transformer over the codes of an image, after a prefix of tokens of its condition.

Pre-norm blocks (Vaswani et al., 2017, arXiv 1706.03762; Radford et al., "GPT-2", 2019) with learned positions. With a
causal mask it predicts each code from those before it, in any order: the input that predicts a code also has the
position of that code, "target-aware" (Yu et al., "RAR", 2024, arXiv 2411.00776). Without a causal mask it predicts
masked codes (Chang et al., "MaskGIT", 2022, arXiv 2202.04200).
"""

from dataclasses import dataclass, field

import torch
from einops import rearrange
from torch import Tensor, nn
from torch.nn import functional

from darkroom.artifacts.networks import LATER, SavedNetwork
from darkroom.models.fused import fused
from darkroom.models.generators.conditions import Captioned, Condition, Embedded
from darkroom.models.generators.embeddings import TokenEmbedding, VectorEmbedding


@dataclass(frozen=True)
class CodesConfig:
    """The shape of a transformer over codes.

    codes: K, the size of the codebook; side: codes in a row, and rows; classes: of the images.
    causal: whether a code is predicted from those before it; else masked codes from all others.
    condition: `class`, `none`, CLIP's embedding of an `image` or of a `text`, a text's embedding and `tokens`, or a
        `caption` that this network embeds itself.
    embed_dim: length of the embedding; 0: none.
    text_shape: number and width of the tokens; None: none.
    caption_shape: numbers of a caption's tokens and of known tokens; None: no captions.
    """

    codes: int
    side: int
    classes: int
    width: int
    depth: int
    heads: int
    causal: bool
    mlp_ratio: float = 4.0
    dropout: float = 0.0
    token_dropout: float = 0.0
    attention_dropout: float = field(default=0.0, metadata=LATER)
    tie: bool = False
    condition: str = "class"
    embed_dim: int = 0
    text_shape: tuple[int, int] | None = None
    caption_shape: tuple[int, int] | None = None

    @property
    def tokens(self) -> int:
        """T, the codes of an image."""
        return self.side**2

    @property
    def prefix(self) -> int:
        """P, the tokens of a condition."""
        if self.caption_shape is not None:
            return self.caption_shape[0]
        return 1 + (self.text_shape[0] if self.text_shape is not None else 0)


@dataclass
class Cache:
    """The keys and values of a block's tokens so far, (N, H, S, D) each; memory for all `tokens` is allocated once."""

    tokens: int
    length: int = 0
    stored: Tensor | None = None

    def extended(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Add the keys and values of the next tokens, and return all so far."""
        if self.stored is None:
            n, heads, _, size = key.shape
            self.stored = key.new_empty(2, n, heads, self.tokens, size)
        start, self.length = self.length, self.length + key.shape[2]
        self.stored[0, :, :, start : self.length], self.stored[1, :, :, start : self.length] = key, value
        return self.stored[0, :, :, : self.length], self.stored[1, :, :, : self.length]


class Block(nn.Module):
    """A pre-norm transformer block: x + attention(norm(x)), then x + network(norm(x))."""

    def __init__(self, config: CodesConfig) -> None:
        super().__init__()
        width, hidden = config.width, max(1, round(config.width * config.mlp_ratio))
        self.heads, self.causal, self.attention_dropout = config.heads, config.causal, config.attention_dropout
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv = fused(nn.Linear(width, 3 * width), 3)
        self.out = nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, hidden), nn.GELU(approximate="tanh"), nn.Linear(hidden, width))
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor, cache: Cache | None = None) -> Tensor:
        """Return tokens (N, S, D) after attention and network; with a cache they follow those in it."""
        query, key, value = rearrange(
            self.qkv(self.norm1(x)), "n s (three h d) -> three n h s d", three=3, h=self.heads
        )
        if cache is not None:
            key, value = cache.extended(key, value)
        causal = self.causal and x.shape[1] > 1  # with a cache: the prefix, or one token that sees all
        dropout = self.attention_dropout if self.training else 0.0
        mixed = functional.scaled_dot_product_attention(query, key, value, dropout_p=dropout, is_causal=causal)
        x = x + self.dropout(self.out(rearrange(mixed, "n h s d -> n s (h d)")))
        return x + self.dropout(self.mlp(self.norm2(x)))


class CodeTransformer(SavedNetwork):
    """A transformer over codes; `forward` is for training, `begin` and `next` sample with a cache."""

    shape = CodesConfig
    made_by = ("transformer", "train_generator")
    vocabulary: Tensor

    def __init__(self, config: CodesConfig) -> None:
        super().__init__()
        self.config, width = config, config.width
        self.words = nn.Embedding(config.codes + (not config.causal), width)  # the last one: masked
        self.positions = nn.Embedding(config.tokens, width)
        if config.causal:
            self.targets = nn.Embedding(config.tokens, width)
        self.prefix_positions = nn.Embedding(config.prefix, width)
        self._add_condition()
        self.dropout = nn.Dropout(config.token_dropout)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.depth))
        self.norm = nn.LayerNorm(width)
        self.head = None if config.tie else nn.Linear(width, config.codes)
        self._initialise()

    def _add_condition(self) -> None:
        config, width = self.config, self.config.width
        if config.condition == "class":
            self.labels = nn.Embedding(config.classes + 1, width)
        if config.embed_dim:
            self.vector = VectorEmbedding(config.embed_dim, width)
        if config.text_shape is not None:
            self.text = TokenEmbedding(config.text_shape, width)
        if config.caption_shape is not None:
            length, known = config.caption_shape
            self.register_buffer("vocabulary", torch.arange(known))
            self.caption = nn.Embedding(known + 2, width)  # the first: any other token; the last: after the end
            self.null = nn.Embedding(length, width)
            if config.causal:
                self.text_head = nn.Linear(width, known + 2)

    def _initialise(self) -> None:
        """Normal weights of deviation 0.02, divided by √(2 depth) where a block ends, as in GPT-2; biases 0."""
        for name, parameter in self.named_parameters():
            if "norm" in name:
                continue
            last = name.startswith("blocks.") and name.endswith(("out.weight", "mlp.2.weight"))
            if name.endswith("bias"):
                nn.init.zeros_(parameter)
            else:
                nn.init.normal_(parameter, std=0.02 / (2 * self.config.depth) ** 0.5 if last else 0.02)

    @property
    def null_label(self) -> int:
        """The label for no label: the last row of the table."""
        return self.config.classes

    @property
    def mask(self) -> int:
        """The code that stands for a masked one, after all others."""
        return self.config.codes

    def forward(
        self,
        codes: Tensor,
        condition: Condition,
        order: Tensor | None = None,
        caches: list[Cache] | None = None,
        place: int = 0,
    ) -> tuple[Tensor, Tensor | None]:
        """Return the logits of codes, (N, T, K), and of a caption's tokens, (N, P - 1, V), or None.

        Args:
            codes: row by row, int64 (N, T); with a causal mask logit t is of the t-th code in `order`; else some are
                `mask`.
            condition: class numbers, int64 (N,), or `null_label`; CLIP embeddings; captions; or None.
            order: the place of each code in turn, int64 (N, T); None: row by row. Only with a causal mask.
            caches: those of `begin`; only the logits of the next code are returned, (N, K). `codes` are then those of
                one place, (N, 1), or none, (N, 0), where the first code is next.
            place: the place of `codes` with caches.
        """
        if caches is not None and codes.shape[1]:
            inputs = self.words(codes) + self.positions.weight[place] + self.targets.weight[place + 1]
            return self._logits(self._hidden(inputs, caches)[:, -1]), None
        prefix = self._prefix(condition, len(codes))
        before, last = prefix[:, :-1], prefix[:, -1:]
        if caches is not None:
            inputs = torch.cat([before, last + self.targets.weight[0]], dim=1)
            return self._logits(self._hidden(inputs, caches)[:, -1]), None
        positions = self.positions.weight
        if not self.config.causal:
            tokens = self.dropout(self.words(codes)) + positions
            hidden = self._hidden(torch.cat([prefix, tokens], dim=1))
            return self._logits(hidden[:, -self.config.tokens :]), None
        targets = self.targets.weight
        if order is not None:
            codes, positions, targets = codes.gather(1, order), positions[order], targets[order]
        tokens = self.dropout(self.words(codes)) + positions
        inputs = torch.cat([last, tokens[:, :-1]], dim=1) + targets
        hidden = self._hidden(torch.cat([before, inputs], dim=1))
        text = self.text_head(hidden[:, : before.shape[1]]) if self.config.caption_shape is not None else None
        return self._logits(hidden[:, before.shape[1] :]), text

    def begin(self, condition: Condition, images: int) -> tuple[Tensor, list[Cache]]:
        """Return the logits of the first code, (N, K), and the caches for `next`; codes follow row by row."""
        caches = [Cache(self.config.prefix + self.config.tokens) for _ in self.blocks]
        none = torch.empty(images, 0, dtype=torch.int64, device=self.positions.weight.device)
        return self(none, condition, caches=caches)[0], caches

    def next(self, codes: Tensor, place: int, caches: list[Cache]) -> Tensor:
        """Return the logits of the code after the one at a place, (N, K), given its codes (N,)."""
        logits: Tensor = self(codes[:, None], None, caches=caches, place=place)[0]
        return logits

    def caption_numbers(self, tokens: Tensor) -> Tensor:
        """Return the rows of `caption` for tokens (N, L), int64: 0 if unknown, the last row after the end."""
        places = torch.searchsorted(self.vocabulary, tokens).clamp(max=len(self.vocabulary) - 1)
        known = torch.where(self.vocabulary[places] == tokens, 1 + places, 0)
        return known.masked_fill(tokens == 0, len(self.vocabulary) + 1)

    def _prefix(self, condition: Condition, images: int) -> Tensor:
        """Return the tokens of a condition, (N, P, D)."""
        if isinstance(condition, Captioned):
            words = self.caption(self.caption_numbers(condition.tokens))
            return torch.where(condition.keep[:, None, None], words, self.null.weight) + self.prefix_positions.weight
        if isinstance(condition, Embedded):
            tokens = self.vector(condition.vector, condition.keep)[:, None]
            if condition.tokens is not None:
                tokens = torch.cat([self.text(condition.tokens, condition.keep)[0], tokens], dim=1)
            return tokens + self.prefix_positions.weight
        if condition is not None:
            return self.labels(condition)[:, None] + self.prefix_positions.weight
        return self.prefix_positions.weight.expand(images, -1, -1)

    def _hidden(self, x: Tensor, caches: list[Cache] | None = None) -> Tensor:
        for number, block in enumerate(self.blocks):
            x = block(x, None if caches is None else caches[number])
        return self.norm(x)

    def _logits(self, hidden: Tensor) -> Tensor:
        if self.head is not None:
            return self.head(hidden)
        return functional.linear(hidden, self.words.weight[: self.config.codes])
