"""The CLIP network for training, and the frozen CLIP for inference: from images and texts to embeddings."""

from collections.abc import Mapping, Sequence
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn import functional

from darkroom.models.clip.package import CLIP, VOCABULARY
from darkroom.models.clip.pixels import preprocessed
from darkroom.models.clip.text import encode, to_tensor, tokens_of

_STAGES = 4  # stages of CLIP's residual network
HEAD = 64  # width of an attention head: `clip.load` derives the number of heads from it


def arguments(
    image_network: str,
    image_size: int,
    patch: int,
    image_width: int,
    image_layers: int,
    text_width: int,
    text_layers: int,
    context_length: int,
    embed_dim: int,
) -> dict[str, Any]:
    """Return the arguments of clip-anytorch's `CLIP` for the settings `train_clip.trained.model`."""
    return {
        "embed_dim": embed_dim,
        "image_resolution": image_size,
        "vision_layers": image_layers if image_network == "vit" else (image_layers,) * _STAGES,
        "vision_width": image_width,
        "vision_patch_size": patch if image_network == "vit" else None,
        "context_length": context_length,
        "vocab_size": VOCABULARY,
        "transformer_width": text_width,
        "transformer_heads": text_width // HEAD,
        "transformer_layers": text_layers,
    }


class Contrastive(CLIP):
    """CLIP for training: `forward` returns embeddings of images and texts instead of logits."""

    def __init__(self, size: Mapping[str, Any]) -> None:
        super().__init__(**arguments(**size))
        self.image_size = size["image_size"]

    @property
    def visual_blocks(self) -> list[nn.Module]:
        """The blocks of the image network for activation checkpointing.

        A residual network has none: a second forward pass would update its batch norms twice.
        """
        return list(self.visual.transformer.resblocks) if hasattr(self.visual, "transformer") else []

    def forward(self, images: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return images' and texts' embeddings, of length 1, float32 (N, D) and (M, D), and the scale of their cosines.

        Args:
            images: uint8 (N, C, H, H).
            tokens: int64 (M, L).
        """
        image = self.encode_image(preprocessed(images, self.image_size))
        text = self.encode_text(tokens)
        image, text = (functional.normalize(_wide(each), dim=1) for each in (image, text))
        return image, text, _wide(self.logit_scale).exp()


def _wide(values: Tensor) -> Tensor:
    """Return values in at least float32, also under autocast."""
    return values.to(torch.promote_types(values.dtype, torch.float32))


class Clip:
    """A frozen CLIP, float32, in evaluation mode.

    embed_dim: the length of an embedding.
    text_width: the width of an encoding.
    context_length: the number of encodings of a text.
    image_size: the side of the network's input in pixels.
    fingerprint: the hash of the weights, its fingerprint.
    """

    def __init__(self, network: CLIP, fingerprint: str, truncate: bool = False) -> None:
        """Freeze a network.

        Args:
            network: the network, converted to float32 in place.
            fingerprint: the hash of the weights.
            truncate: whether to truncate texts that are too long.
        """
        self.network = network.float().eval().requires_grad_(False)
        self.fingerprint, self.truncate = fingerprint, truncate
        self.embed_dim: int = network.text_projection.shape[1]
        self.text_width: int = network.ln_final.weight.shape[0]
        self.context_length: int = network.context_length
        self.image_size: int = network.visual.input_resolution
        self._device = torch.device("cpu")

    def to(self, device: torch.device) -> Self:
        """Move the network, and return this object."""
        self.network.to(device)
        self._device = device
        return self

    @torch.no_grad()
    def images(self, images: Tensor) -> Tensor:
        """Return the embeddings, float32 (N, embed_dim), not normalised, of uint8 images (N, C, H, H)."""
        return self.network.encode_image(preprocessed(images.to(self._device), self.image_size))

    def texts(self, texts: Sequence[str]) -> tuple[Tensor, Tensor]:
        """Return embeddings and encodings of texts.

        Returns:
            float32 (N, embed_dim), not normalised, and float32 (N, context_length, text_width), zero after the end
            token.

        Raises:
            DarkroomError: a text is too long, and `truncate` is False.
        """
        return self.tokens(to_tensor(tokens_of(texts, self.context_length, self.truncate)))

    @torch.no_grad()
    def tokens(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Return embeddings and encodings, as `texts` does, of tokens int64 (N, context_length)."""
        return encode(self.network, tokens.to(self._device))
