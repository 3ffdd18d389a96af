"""Images from an autoregressive tokenizer, code by code, with a cache of keys and values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from einops import rearrange
from numpy.typing import NDArray
from torch import Tensor

from darkroom.diffusion.denoiser import guided_halves
from darkroom.models.sampled_codes import gumbel, min_p_filter
from darkroom.models.tokenizers.settings import SampleTokenizer

if TYPE_CHECKING:
    from darkroom.models.tokenizers.vq_ar.network import VQAutoregressive


@torch.no_grad()
def sample_codes(
    model: VQAutoregressive, settings: SampleTokenizer, numbers: Sequence[int], labels: Tensor, cache: bool = True
) -> Tensor:
    """Return the codes of some images, int64 (N, h, w).

    Each is argmax_k (l_k / temperature + g_k), l the logits that `min_p_filter` kept and g Gumbel noise: a draw from
    softmax(l / temperature).

    Args:
        model: in evaluation mode.
        settings: the sampling of codes. With guidance s, logits are l(no class) + s (l(class) - l(no class)).
        numbers: those of the images, which determine their noise.
        labels: the start token of each image, (N,) int64, on the model's device.
        cache: keep the keys and values of earlier codes; False: compute all again for each code. The codes are the
            same up to rounding.
    """
    guides = settings.guidance != 1 and model.config.classes > 0
    starts = torch.cat([labels, torch.full_like(labels, model.null_label)]) if guides else labels
    inputs, known = model.start[starts][:, None], None
    chosen: list[Tensor] = []
    for token in range(model.tokens):
        logits, known = model.logits(inputs, known if cache else None)
        if guides:
            logits = guided_halves(logits, settings.guidance)
        if logits.device.type == "mps":  # it has no float64
            logits = logits.cpu()
        noise = gumbel(settings.seed, "vq_ar/sample", numbers, token, model.tokens, model.config.codebook_size)
        scores = min_p_filter(logits.double(), settings.min_p) / settings.temperature
        chosen.append((scores + torch.from_numpy(noise).to(logits.device)).argmax(dim=-1).to(labels.device))
        vectors = model.to_token(model.codebook[chosen[-1]])[:, None]
        vectors = torch.cat([vectors, vectors]) if guides else vectors
        inputs = vectors if cache else torch.cat([inputs, vectors], dim=1)
    return rearrange(torch.stack(chosen, dim=1), "n (h w) -> n h w", h=model.side)


def generate(
    model: VQAutoregressive, settings: SampleTokenizer, device: torch.device, starts: Sequence[int] | None = None
) -> Iterator[NDArray[np.uint8]]:
    """Yield the images of `settings` in batches, uint8 (n, C, H, W), n at most `settings.batch`.

    With classes, image i has class i modulo their number. An image follows from (seed, i) alone, bit for bit, because
    the network always sees `settings.batch` of them.

    Args:
        model: in evaluation mode, on the device.
        settings: the images and the sampling of their codes.
        device: of the model.
        starts: only the batches that begin with these images; None: all.
    """
    for start in range(0, settings.images, settings.batch) if starts is None else starts:
        numbers = np.arange(start, start + settings.batch)  # past the last image: padding
        labels = torch.from_numpy(numbers % max(1, model.config.classes)).to(device)
        images = model.decode_codes(sample_codes(model, settings, numbers.tolist(), labels))
        yield images[: settings.images - start].cpu().numpy()
