"""Draw the samples nearest to a reference image, to find copies and errors by eye."""

from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from darkroom.data.grid import captioned_grid, opaque, save_png
from darkroom.data.images import to_array, to_pil
from darkroom.metrics.manifold import centred, nearest
from darkroom.tools.score.images import Images, Pixels

NEIGHBOURS, SHOWN = 5, 8
_WIDTH = 1200  # maximum width of the picture, in pixels


def draw_nearest(
    path: Path, images: Images, features: Tensor, others: Images, reference: Tensor
) -> tuple[float, float]:
    """Draw the 8 samples nearest to a reference image, one per row, with their 5 nearest reference images.

    Args:
        path: path of the PNG.
        images: N samples.
        features: features of the samples, (N, D).
        others: M reference images, at least 6.
        reference: features of the reference images, (M, D).

    Returns:
        the median distance to the nearest reference image, for samples and for reference images.
    """
    real, generated = centred(reference, features)
    squares, which = nearest(generated, real, NEIGHBOURS)
    own, _ = nearest(real, real, 1, same=True)
    rows = squares[:, 0].argsort(stable=True)[:SHOWN].tolist()
    size = others.shape[2], others.shape[1]
    left, right = _taken(images, rows, size), _taken(others, torch.unique(which[rows]).tolist(), size)
    groups = [np.stack([left[row], *(right[number] for number in which[row].tolist())]) for row in rows]
    captions = [f"distance {squares[row, 0].sqrt().item():.4g}" for row in rows]
    picture = captioned_grid(groups, captions, columns=1)
    picture.thumbnail((_WIDTH, 100 * _WIDTH))
    save_png(path, picture)
    return float(squares[:, 0].sqrt().median()), float(own[:, 0].sqrt().median())


def _taken(images: Images, rows: list[int], size: tuple[int, int]) -> dict[int, Pixels]:
    """Return some images in RGB, (3, H, W), by their numbers, resized by repeated or dropped pixels."""
    ascending = sorted(set(rows))
    pixels = (image for group in images.batches(64, ascending) for image in opaque(group))
    resized = (to_array(to_pil(image).convert("RGB").resize(size, Image.Resampling.NEAREST)) for image in pixels)
    return dict(zip(ascending, resized, strict=True))
