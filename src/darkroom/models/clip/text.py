"""Texts as CLIP's tokens: a start, the pieces of the words, an end, and zeros up to the context's length."""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from darkroom.errors import DarkroomError
from darkroom.models.clip.package import CLIP, tokenize

_SHOWN = 60  # letters of a text in a message


def tokens_of(
    texts: Sequence[str], context: int, truncate: bool, name: Callable[[int], str] | None = None
) -> NDArray[np.uint16]:
    """Return texts as tokens, (N, context).

    Args:
        texts: any words; case and spaces do not matter.
        context: tokens of a text, start and end among them.
        truncate: cut a text that is longer, whose last token is then the end; False: refuse it.
        name: says what text i belongs to, for the message.

    Raises:
        DarkroomError: a text is too long; names it.
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
    """Return tokens as the network takes them, int64."""
    return torch.from_numpy(tokens.astype(np.int64)).to(device or "cpu")


def encode(network: CLIP, tokens: Tensor) -> tuple[Tensor, Tensor]:
    """Return what the text network makes of tokens (N, L), int64.

    Returns:
        embeddings (N, D), not normalised, as `CLIP.encode_text` has them; and encodings (N, L, W), the last layer at
        each token, zero after the end of the text, as unCLIP's decoder is given them (Ramesh et al., 2022, 2204.06125).
    """
    x = network.token_embedding(tokens).type(network.dtype)  # (N, L, W)
    x = x + network.positional_embedding[: tokens.shape[1]].type(network.dtype)
    x = network.transformer(x.permute(1, 0, 2)).permute(1, 0, 2)
    x = network.ln_final(x).type(network.dtype)
    end = tokens.argmax(dim=1)  # the end has the highest number
    embeddings = x[torch.arange(len(x), device=x.device), end] @ network.text_projection
    inside = torch.arange(tokens.shape[1], device=x.device) <= end[:, None]
    return embeddings, x * inside[:, :, None]
