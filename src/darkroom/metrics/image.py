"""PSNR, SSIM and MS-SSIM of images and their reconstructions: a score for each image, then the mean over images.

They compare RGBA images on white. The scores of alpha include what white hides.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from darkroom.data.colours import composited, premultiplied
from darkroom.errors import DarkroomError
from darkroom.metrics.uncertainty import mean_and_error

PEAK = 255.0
WINDOW = 11  # pixels, of SSIM
SIGMA = 1.5  # of its Gaussian
SCALES = (0.0448, 0.2856, 0.3001, 0.2363, 0.1333)  # exponents of MS-SSIM's scales, the finest first
SMALLEST = WINDOW * 2 ** (len(SCALES) - 1)  # pixels a side of MS-SSIM: the window fits into the coarsest scale

# From uint8 images and their reconstructions, each (N, C, H, W), to a score for each pair, (N,).
Measure = Callable[[Tensor, Tensor], Tensor]


def _visible(images: Tensor, others: Tensor) -> tuple[Tensor, Tensor]:
    if images.dtype != torch.uint8 or others.dtype != torch.uint8 or images.shape != others.shape or images.ndim != 4:
        raise DarkroomError(
            f"images and reconstructions must be uint8 (N, C, H, W) of one shape, not {images.dtype} "
            f"{tuple(images.shape)} and {others.dtype} {tuple(others.shape)}."
        )
    return composited(images), composited(others)


def psnr(images: Tensor, others: Tensor) -> Tensor:
    """Return 10 log10(255² / MSE) in dB for each pair of uint8 images (N, C, H, W); (N,), float64.

    The MSE is over C, H and W. Identical images, whose ratio is infinite, get the highest finite value that images of
    their size can have, that of one grey level in one value: 10 log10(255² C H W).
    """
    # Here and below: the import loads all of torchmetrics and matplotlib, which other metrics do not need.
    from torchmetrics.functional.image.psnr import peak_signal_noise_ratio

    images, others = _visible(images, others)
    ceiling = 10 * math.log10(PEAK**2 * images[0].numel())
    each = peak_signal_noise_ratio(others.double(), images.double(), data_range=PEAK, reduction="none", dim=(1, 2, 3))
    return each.reshape(len(images)).clamp(max=ceiling)


def ssim(images: Tensor, others: Tensor) -> Tensor:
    """Return the structural similarity of each pair of uint8 images (N, C, H, W); (N,), float64, at most 1.

    Wang et al., "Image quality assessment: from error visibility to structural similarity", 2004: Gaussian window of 11
    pixels and sigma 1.5, K = 0.01 and 0.03, range 255, images reflected at borders, mean over pixels and channels.

    Raises:
        DarkroomError: a side shorter than the window.
    """
    from torchmetrics.functional.image.ssim import structural_similarity_index_measure

    images, others = _visible(images, others)
    if min(images.shape[2:]) < WINDOW:
        raise DarkroomError(f"SSIM needs images of at least {WINDOW} pixels a side, not {tuple(images.shape[2:])}.")
    # float64: variances are differences of large squares.
    each = structural_similarity_index_measure(
        others.double(), images.double(), data_range=PEAK, reduction="none", sigma=SIGMA, kernel_size=WINDOW
    )
    return torch.as_tensor(each).reshape(len(images))


def _luminance_and_contrast(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return SSIM, and its factor of contrast and structure alone, where the window lies inside; both (N, C)."""
    line = torch.exp(-((torch.arange(WINDOW, dtype=x.dtype, device=x.device) - WINDOW // 2) ** 2) / (2 * SIGMA**2))
    kernel = (torch.outer(line, line) / line.sum() ** 2).expand(x.shape[1], 1, WINDOW, WINDOW)
    moments = torch.cat([x, y, x * x, y * y, x * y])
    mx, my, xx, yy, xy = functional.conv2d(moments, kernel, groups=x.shape[1]).chunk(5)
    c1, c2 = (0.01 * PEAK) ** 2, (0.03 * PEAK) ** 2
    contrast = (2 * (xy - mx * my) + c2) / (xx - mx**2 + yy - my**2 + c2)
    luminance = (2 * mx * my + c1) / (mx**2 + my**2 + c1)
    return (luminance * contrast).mean((2, 3)), contrast.mean((2, 3))


def ms_ssim(images: Tensor, others: Tensor) -> Tensor:
    """Return the multi-scale structural similarity of each pair of uint8 images (N, C, H, W); (N,), float64, at most 1.

    Wang, Simoncelli and Bovik, "Multi-scale structural similarity for image quality assessment", 2003, equation 7:
    l_5^w5 Π_j (c_j s_j)^wj over five scales, each half the size of the one before by the mean of 2 x 2 pixels; window
    and constants as in SSIM, only where the window lies inside. For each channel, then the mean over channels; a
    negative mean of a scale, which has no such power, counts as 0. Torchmetrics reflects the borders of the coarsest
    scale only, and returns NaN for a negative mean.

    Raises:
        DarkroomError: a side shorter than the window at the coarsest scale, 176 pixels.
    """
    images, others = _visible(images, others)
    if min(images.shape[2:]) < SMALLEST:
        raise DarkroomError(
            f"MS-SSIM needs images of at least {SMALLEST} pixels a side, not {tuple(images.shape[2:])}."
        )
    x, y = images.double(), others.double()
    product = torch.ones(images.shape[:2], dtype=torch.float64, device=images.device)
    for scale, weight in enumerate(SCALES):
        whole, contrast = _luminance_and_contrast(x, y)
        product = product * (whole if scale == len(SCALES) - 1 else contrast).clamp(min=0) ** weight
        x, y = functional.avg_pool2d(x, 2), functional.avg_pool2d(y, 2)
    return product.mean(dim=1)


def psnr_visible(images: Tensor, others: Tensor) -> Tensor:
    """Return 10 log10(255² Σ a / Σ a e) in dB for each pair of uint8 RGBA images (N, 4, H, W); (N,), float64.

    a is the alpha of the first image, e a pixel's squared error, the mean over its colours on black and on white. At
    most `psnr`'s highest value.
    """
    weight = images[:, 3:].double()
    on_black, on_white = _differences(images, others)
    squares = (on_black.square() + on_white.square()).mean(dim=1, keepdim=True) / 2
    each = 10 * torch.log10(PEAK**2 * weight.sum((1, 2, 3)) / (weight * squares).sum((1, 2, 3)))
    return each.nan_to_num(torch.inf).clamp(max=10 * math.log10(PEAK**2 * images[0, :3].numel()))


def _differences(images: Tensor, others: Tensor) -> tuple[Tensor, Tensor]:
    """Return the differences of uint8 RGBA images on black and on white, in levels, float64 (N, 3, H, W) each."""
    difference = premultiplied(others).double() - premultiplied(images).double()
    return difference[:, :3], difference[:, :3] - difference[:, 3:]


def alpha_error(images: Tensor, others: Tensor, edges: bool = False) -> Tensor:
    """Return the mean |â - a|, 0 to 1, for each pair of uint8 RGBA images (N, 4, H, W); (N,), float64.

    `edges`: of the pixels in whose 3 x 3 neighbourhood an alpha is below 128 and another is not; NaN without any.
    """
    difference = (others[:, 3:].double() - images[:, 3:].double()).abs() / PEAK
    if not edges:
        return difference.mean((1, 2, 3))
    solid = (images[:, 3:] >= 128).float()
    at = functional.max_pool2d(solid, 3, 1, 1) > -functional.max_pool2d(-solid, 3, 1, 1)
    return (difference * at).sum((1, 2, 3)) / at.sum((1, 2, 3))


def transparent_kept(images: Tensor, others: Tensor) -> Tensor:
    """Return the fraction of pixels of alpha 0 that are decoded with alpha 0, of uint8 RGBA images (N, 4, H, W).

    (N,) float64; NaN for an image without any.
    """
    clear = images[:, 3:] == 0
    return (clear & (others[:, 3:] == 0)).sum((1, 2, 3)).double() / clear.sum((1, 2, 3))


BASIC: Mapping[str, Measure] = {"psnr": psnr, "ssim": ssim}
RGBA: Mapping[str, Measure] = {
    "psnr_visible": psnr_visible,
    "alpha_error": alpha_error,
    "alpha_edge_error": partial(alpha_error, edges=True),
    "transparent_kept": transparent_kept,
}


def image_scores(pairs: Iterable[tuple[Tensor, Tensor]], measures: Mapping[str, Measure] = BASIC) -> dict[str, float]:
    """Return each measure as the mean over all images of batches of (images, reconstructions).

    Each comes with its standard error over the images, such as `psnr_se`. Images for which a measure is NaN are left
    out of its mean; a measure without any image is left out.

    Raises:
        DarkroomError: there is no image.
    """
    each: dict[str, list[float]] = {name: [] for name in measures}
    for images, others in pairs:
        for name, measure in measures.items():
            each[name] += measure(images, others).tolist()
    if not all(each.values()):
        raise DarkroomError("there are no images to compare: check that the split is not empty.")
    known = {name: [value for value in values if not math.isnan(value)] for name, values in each.items()}
    return {key: value for name, of in known.items() if of for key, value in mean_and_error(name, of).items()}


Images = NDArray[np.uint8]

BRIGHTER = 4  # factor: an error of 64 grey levels is white, and errors too small to see become visible


def error(originals: Images, decoded: Images) -> Images:
    """Return min(255, 4 |decoded - original|), uint8 (N, C, H, W).

    For RGBA images, opaque, the larger one of the differences on black and on white.
    """
    if originals.shape[1] != 4:
        difference = np.abs(decoded.astype(np.int16) - originals.astype(np.int16))
        return np.minimum(255, BRIGHTER * difference).astype(np.uint8)
    on_black, on_white = _differences(torch.from_numpy(originals), torch.from_numpy(decoded))
    shown = (BRIGHTER * torch.maximum(on_black.abs(), on_white.abs())).round().clamp(max=255).to(torch.uint8)
    return np.concatenate([shown.numpy(), np.full_like(originals[:, :1], 255)], axis=1)


def rows(originals: Images, decoded: Images, columns: int) -> Images:
    """Return images row by row: `columns` originals, below them their reconstructions, their errors, and so on."""
    parts: list[Images] = []
    for at in range(0, len(originals), columns):
        one, other = originals[at : at + columns], decoded[at : at + columns]
        parts += [one, other, error(one, other)]
    return np.concatenate(parts)
