"""Tokenises texts for CLIP: a start token, byte pairs, an end token, and zeros up to the context length."""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from darkroom.errors import DarkroomError
from darkroom.models.clip.package import CLIP, tokenize

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
                f"the text {shown!r}{whose} has more than the {context} tokens of CLIP's context: raise "
                "`train_clip.trained.model.context_length` (77 at most), or set `train_clip.long_captions` to truncate."
            ) from None
    return rows


def to_tensor(tokens: NDArray[np.uint16], device: torch.device | None = None) -> Tensor:
    """Return tokens as the input of the network, int64 (N, L)."""
    return torch.from_numpy(tokens.astype(np.int64)).to(device or "cpu")


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
