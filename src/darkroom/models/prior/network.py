"""The diffusion prior: from a text's CLIP embedding to those of images that it fits, by diffusers' PriorTransformer.

Ramesh et al., "Hierarchical text-conditional image generation with CLIP latents", 2022, arXiv 2204.06125, section 2.2:
a transformer with a causal mask reads the encoded text, the text embedding, the time, the noisy image embedding, and a
learned query, whose output is the prediction. Dropped texts, and the places after a text's end, are learned nulls.
"""

from dataclasses import dataclass
from typing import Any, Self

import torch
from diffusers import PriorTransformer
from torch import Tensor, nn

from darkroom.artifacts.networks import SavedNetwork
from darkroom.diffusion.scalers import EmbeddingScaler

_ADDED = 4  # tokens beside the encodings: the text embedding, the time, the noisy image embedding, the query
_NULL = 0.02  # standard deviation at the start of what is learned as a token


@dataclass(frozen=True)
class PriorConfig:
    """The shape of a prior.

    embed_dim: length of the embeddings.
    text_shape: tokens and width of the text encoding; None: the text embedding alone is read.
    width: of a token.
    depth: transformer blocks.
    heads: attention heads of each.
    dropout: fraction of the features dropped while training.
    """

    embed_dim: int
    text_shape: tuple[int, int] | None
    width: int
    depth: int
    heads: int
    dropout: float = 0.0


class PriorNetwork(SavedNetwork):
    """The transformer with its texts. Predicts the target of its objective for an image embedding."""

    made_by = ("prior", "train_prior")

    def __init__(self, config: PriorConfig) -> None:
        super().__init__()
        self.config = config
        length, text_width = config.text_shape or (0, 0)
        transformer: Any = PriorTransformer(
            num_attention_heads=config.heads,
            attention_head_dim=config.width // config.heads,
            num_layers=config.depth,
            embedding_dim=config.embed_dim,
            num_embeddings=length,
            additional_embeddings=_ADDED,
            dropout=config.dropout,
            encoder_hid_proj_type=None,  # its own wants encodings as wide as embeddings
        )
        for statistic in (transformer.clip_mean, transformer.clip_std):  # given, not learned
            statistic.requires_grad_(False)
        for parameter in transformer.proj_to_clip_embeddings.parameters():  # nothing is said at first
            nn.init.zeros_(parameter)
        for token in (transformer.positional_embedding, transformer.prd_embedding):
            nn.init.normal_(token, std=_NULL)
        self.transformer = transformer
        self.null_text = nn.Parameter(torch.randn(config.embed_dim))
        if config.text_shape is not None:
            self.words = nn.Linear(text_width, config.width)
            self.null_words = nn.Parameter(_NULL * torch.randn(length, config.width))

    @torch.no_grad()
    def set_scaler(self, scaler: EmbeddingScaler) -> None:
        """Take in mean and standard deviation of the elements of stored image embeddings.

        They lie among the weights, under the names at which diffusers' pipelines look for them.
        """
        self.transformer.clip_mean.copy_(scaler.mean[None])
        self.transformer.clip_std.copy_(scaler.std[None])

    def to_unit(self, embeddings: Tensor) -> Tensor:
        """Return stored image embeddings (N, D) at about unit variance, float32."""
        return (embeddings.float() - self.transformer.clip_mean) / self.transformer.clip_std

    def from_unit(self, embeddings: Tensor) -> Tensor:
        """Return the inverse of `to_unit`."""
        return embeddings * self.transformer.clip_std + self.transformer.clip_mean

    @property
    def blocks(self) -> list[nn.Module]:
        """The blocks whose activations may be computed again in the backward pass."""
        return list(self.transformer.transformer_blocks)

    def forward(
        self, x: Tensor, timesteps: Tensor, text: Tensor, encodings: Tensor | None, kept: Tensor | None = None
    ) -> Tensor:
        """Return the prediction, (N, D).

        Args:
            x: noisy image embeddings, of about unit variance, (N, D).
            timesteps: (N,), integer or float.
            text: text embeddings, likewise, (N, D).
            encodings: of the same texts, zero after their end, (N, L, W); None where the configuration has none.
            kept: which texts are kept and not replaced by the null, bool (N,); None: all.
        """
        kept = torch.ones(len(x), dtype=torch.bool, device=x.device) if kept is None else kept
        text = torch.where(kept[:, None], text, self.null_text.to(text.dtype))
        words = None
        if self.config.text_shape is not None:
            assert encodings is not None
            words = self.words(encodings)  # (N, L, width)
            given = (encodings != 0).any(dim=2) & kept[:, None]
            words = torch.where(given[:, :, None], words, self.null_words.to(words.dtype))
        # diffusers applies its causal mask only beside a mask of tokens.
        mask = torch.ones(len(x), 0 if words is None else words.shape[1], dtype=torch.bool, device=x.device)
        return self.transformer(x, timesteps, text, words, mask, return_dict=False)[0]

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Return an untrained network."""
        shape = config["text_shape"]
        return cls(PriorConfig(**{**config, "text_shape": None if shape is None else tuple(shape)}))
