"""Codes from logits: filters and guidance; and the sampler that decodes them."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from darkroom.models.generators.codes.network import CodeTransformer
from darkroom.models.generators.codes.settings import CodeSampling
from darkroom.models.generators.conditions import Condition
from darkroom.models.sampled_codes import min_p_filter
from darkroom.models.tokenizers.protocol import Codes, Tokenizer


def filtered(logits: Tensor, settings: CodeSampling) -> Tensor:
    """Return logits (..., K) divided by the temperature, -inf where a code is not sampled.

    The most likely code is always sampled. Top-k, then top-p (Holtzman et al., 2019, arXiv 1904.09751): the smallest
    set of codes whose probabilities have at least this sum; then `min_p_filter`.
    """
    logits = logits / settings.temperature
    if settings.top_k is not None and settings.top_k < logits.shape[-1]:
        least = logits.topk(settings.top_k, dim=-1).values[..., -1:]
        logits = logits.masked_fill(logits < least, -torch.inf)
    if settings.top_p < 1:
        ordered, places = logits.sort(dim=-1, descending=True)
        p = ordered.softmax(dim=-1)
        dropped = (p.cumsum(dim=-1) - p) >= settings.top_p
        logits = logits.masked_fill(torch.zeros_like(dropped).scatter(-1, places, dropped), -torch.inf)
    return min_p_filter(logits, settings.min_p) if settings.min_p else logits


def drawn(logits: Tensor, uniform: NDArray[np.float64]) -> Tensor:
    """Return a code of each row, int64 (...), by the inverse of the cumulated probabilities, on the device of logits.

    Args:
        logits: filtered, float64 (..., K).
        uniform: in [0, 1), (...).
    """
    cumulated = logits.softmax(dim=-1).cumsum(dim=-1)
    level = torch.from_numpy(uniform).to(logits.device)[..., None] * cumulated[..., -1:]
    return torch.searchsorted(cumulated, level, right=True)[..., 0].clamp(max=logits.shape[-1] - 1)


def scale_at(settings: CodeSampling, fraction: float) -> float:
    """Return the scale of guidance at a fraction of the codes, from 0 to 1.

    cosine: 1 + (s - 1) (1 - cos(π f^p)) / 2, p the power (RAR, section 4.3).
    """
    if settings.guidance_schedule == "constant":
        return settings.guidance
    rise = fraction
    if settings.guidance_schedule == "cosine":
        rise = (1 - math.cos(math.pi * fraction**settings.guidance_power)) / 2
    return 1 + (settings.guidance - 1) * rise


def guides(settings: CodeSampling, condition: Condition) -> bool:
    """Return whether images are guided: without a condition there is no null."""
    return settings.guidance != 1 and condition is not None


class CodeSampler:
    """A transformer over codes, and the tokenizer that decodes them. Kinds add `codes`."""

    guide: nn.Module | None = None
    classifier: Any = None

    def __init__(self, model: CodeTransformer, tokenizer: Tokenizer) -> None:
        self.model, self.tokenizer = model, tokenizer
        self.classes = model.config.classes

    @classmethod
    def open(cls, folder: Path, manifest: Mapping[str, Any], tokenizer: Tokenizer, weights: str) -> Self:
        """Return the sampler of a folder that `train_generator` wrote, on the CPU: see `Sampler.open`."""
        return cls(CodeTransformer.from_pretrained(folder if weights == "ema" else folder / "raw"), tokenizer)

    @property
    def device(self) -> torch.device:
        """The device of the network."""
        return self.model.positions.weight.device

    def to(self, device: torch.device) -> Self:
        """Move the network to a device, and return the sampler."""
        self.model.to(device)
        return self

    def __call__(self, numbers: Sequence[int], condition: Condition, seed: int, settings: Any) -> Tensor:
        """Return images, uint8 (N, C, H, W), from noise that follows from (seed, number)."""
        assert isinstance(self.tokenizer, Codes)  # `fits` has checked it
        return self.tokenizer.decode_codes(self.codes(numbers, condition, seed, settings))

    def codes(self, numbers: Sequence[int], condition: Condition, seed: int, settings: Any) -> Tensor:
        """Return codes, int64 (N, h, w)."""
        raise NotImplementedError
