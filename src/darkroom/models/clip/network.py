"""The CLIP network for training, and the frozen CLIP for inference: from images and texts to embeddings.

Texts become a start token, byte pairs, an end token, and zeros up to the context length; images the size and colours of
the network's input, with OpenAI's mean and standard deviation. The networks are clip-anytorch's, unchanged, so that
`clip.load` opens networks trained here. Source: Radford et al., "Learning transferable visual models from natural
language supervision", 2021, arXiv 2103.00020.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from darkroom.data.colours import to_rgb
from darkroom.device import to_device
from darkroom.errors import DarkroomError

with warnings.catch_warnings():
    # clip-anytorch parses version numbers with pkg_resources, which warns, and which setuptools drops in version 81.
    warnings.filterwarnings("ignore", message="pkg_resources is deprecated", category=UserWarning)
    from clip import load, tokenize
    from clip.model import CLIP, build_model, convert_weights

__all__ = ["CLIP", "build_model", "convert_weights", "load", "tokenize"]  # clip-anytorch's, for other modules

VOCABULARY = 49408  # size of the byte-pair vocabulary; the last two tokens are the start and the end of a text

# Mean and standard deviation of each channel over OpenAI's training images, used for all networks.
MEAN = (0.48145466, 0.4578275, 0.40821073)
STD = (0.26862954, 0.26130258, 0.27577711)


def resized(images: Tensor, size: int, interpolation: str = "bicubic") -> Tensor:
    """Return uint8 images (N, 3, H, H) resized to (N, 3, size, size), float32, whole numbers from 0 to 255.

    Bicubic, or bilinear, and antialiased, first in width and then in height, rounded after each, as in Pillow. Pillow's
    coefficients are fixed-point numbers, so that results differ from it by at most one grey level.
    """
    x = images.float()
    for shape in ((x.shape[2], size), (size, size)) if x.shape[2] != size else ():
        x = functional.interpolate(x, size=shape, mode=interpolation, antialias=True, align_corners=False)
        x = x.round().clamp(0, 255)
    return x


@dataclass(frozen=True)
class Preprocessing:
    """From images to a network's input.

    size: pixels, height and width.
    mean, std: of each channel, of values from 0 to 1.
    interpolation: bicubic or bilinear.
    """

    size: int
    mean: tuple[float, ...] = MEAN
    std: tuple[float, ...] = STD
    interpolation: str = "bicubic"

    def __call__(self, images: Tensor) -> Tensor:
        """Return uint8 images (N, C, H, H) as the network's input, float32 (N, 3, size, size).

        The transform that `clip.load` returns with the network, on tensors. Grey and RGBA: see `to_rgb`.

        Raises:
            DarkroomError: the images are not uint8, not square, or do not have 1, 3 or 4 channels.
        """
        if images.shape[-2] != images.shape[-1]:
            raise DarkroomError(f"CLIP needs square images, not {tuple(images.shape)}: crop them first.")
        x = resized(to_rgb(images), self.size, self.interpolation).div_(255)  # in place: a third of the time
        mean, std = (to_device(torch.tensor(values), x.device)[:, None, None] for values in (self.mean, self.std))
        return x.sub_(mean).div_(std)


def preprocessed(images: Tensor, size: int) -> Tensor:
    """Return images as the input of OpenAI's networks: see `Preprocessing`."""
    return Preprocessing(size)(images)


_SHOWN = 60  # maximum characters of a text in a message


def tokens_of(
    texts: Sequence[str], context: int, truncate: bool, name: Callable[[int], str] | None = None
) -> NDArray[np.uint16]:
    """Return the tokens of texts, uint16 (N, context).

    Args:
        texts: the texts; case and extra spaces are ignored.
        context: the number of tokens of a text, with the start and end tokens.
        truncate: whether to truncate longer texts, whose last token is then the end token; False: raise.
        name: returns the origin of text i, for messages.

    Raises:
        DarkroomError: a text is too long; the message quotes it.
    """
    rows = np.zeros((len(texts), context), dtype=np.uint16)
    for number, text in enumerate(texts):
        try:
            rows[number] = tokenize(text, context, truncate)[0].numpy()
        except RuntimeError:
            whose = f" of {name(number)}" if name else ""
            shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
            raise DarkroomError(
                f"the text {shown!r}{whose} is longer than CLIP's context of {context} tokens: raise "
                "`train_clip.trained.model.context_length` (77 at most), or set `train_clip.long_captions` to truncate."
            ) from None
    return rows


def to_tensor(tokens: NDArray[np.uint16]) -> Tensor:
    """Return tokens as the input of the network, int64 (N, L)."""
    return torch.from_numpy(tokens.astype(np.int64))


def encode(network: CLIP, tokens: Tensor) -> tuple[Tensor, Tensor]:
    """Return the outputs of the text network for tokens, int64 (N, L).

    Returns:
        embeddings (N, D), not normalised, as of `CLIP.encode_text`; and encodings (N, L, W), the last layer at each
        token, zero after the end of the text, a condition of unCLIP's decoder (Ramesh et al., 2022, 2204.06125).
    """
    x = network.token_embedding(tokens).type(network.dtype)  # (N, L, W)
    x = x + network.positional_embedding[: tokens.shape[1]].type(network.dtype)
    x = network.transformer(x.permute(1, 0, 2)).permute(1, 0, 2)
    x = network.ln_final(x).type(network.dtype)
    end = tokens.argmax(dim=1)  # the end token has the highest number
    embeddings = x[torch.arange(len(x), device=x.device), end] @ network.text_projection
    inside = torch.arange(tokens.shape[1], device=x.device) <= end[:, None]
    return embeddings, x * inside[:, :, None]


_STAGES = 4  # stages of CLIP's residual network
HEAD = 64  # width of an attention head: `clip.load` derives the number of heads from it


def arguments(size: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of clip-anytorch's `CLIP` for the settings `train_clip.trained.model`."""
    vit, layers = size["image_network"] == "vit", size["image_layers"]
    return {
        "embed_dim": size["embed_dim"],
        "image_resolution": size["image_size"],
        "vision_layers": layers if vit else (layers,) * _STAGES,
        "vision_width": size["image_width"],
        "vision_patch_size": size["patch"] if vit else None,
        "context_length": size["context_length"],
        "vocab_size": VOCABULARY,
        "transformer_width": size["text_width"],
        "transformer_heads": size["text_width"] // HEAD,
        "transformer_layers": size["text_layers"],
    }


class Contrastive(CLIP):
    """CLIP for training: `forward` returns embeddings of images and texts instead of logits."""

    def __init__(self, size: Mapping[str, Any]) -> None:
        super().__init__(**arguments(size))
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
    fingerprint: the hash of the weights.
    """

    def __init__(self, network: CLIP, fingerprint: str, truncate: bool = False) -> None:
        """Freeze a network, converted to float32 in place; `truncate`: whether to truncate texts that are too long."""
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
