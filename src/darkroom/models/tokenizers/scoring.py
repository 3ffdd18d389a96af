"""What `score_tokenizer` measures of a tokenizer: of each image and its reconstruction, and of the codes."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from darkroom.data.reader import ImageShards
from darkroom.metrics.codes import Counts, code_counts
from darkroom.metrics.image import BASIC, SMALLEST, Measure, ms_ssim
from darkroom.models.evaluators.pairs import perceptual_measure
from darkroom.models.tokenizers.protocol import Codes, Tokenizer, encode_codes_all
from darkroom.models.tokenizers.settings import ScoreTokenizer
from darkroom.terminal.terminal import with_progress


def measures(
    settings: ScoreTokenizer, image_shape: tuple[int, int, int], device: torch.device
) -> tuple[dict[str, Measure], list[str], str | None]:
    """Return what is measured of an image, notes on what is not, and the hash of LPIPS's weights, None without it.

    Raises:
        DarkroomError: LPIPS is asked for, and its weights are missing or not VGG16's, or the images are too small.
    """
    found, notes = dict(BASIC), []
    if min(image_shape[1:]) >= SMALLEST:
        found["ms_ssim"] = ms_ssim
    else:
        notes.append(f"ms_ssim is left out: its coarsest scale needs {SMALLEST} pixels a side, not {image_shape[1]}")
    if settings.lpips == "none":
        return found, notes, None
    found["lpips"], sha256 = perceptual_measure(Path(settings.vgg16), image_shape, "score_tokenizer.vgg16", device)
    return found, notes, sha256


def counted(
    tokenizer: Tokenizer, train: ImageShards, scored: ImageShards, batch: int, device: torch.device
) -> tuple[Counts, Counts] | None:
    """Return how often each code occurs in the train split and in the scored one, None without codes."""
    if not isinstance(tokenizer, Codes):
        return None
    discrete: Codes = tokenizer

    def codes(shards: ImageShards) -> Iterator[NDArray[np.int64]]:
        for images in with_progress(shards.batches(batch), len(shards), "codes"):
            yield encode_codes_all(discrete, torch.from_numpy(images), batch, device)

    size = discrete.codebook_size
    return code_counts(codes(train), size), code_counts(codes(scored), size)
