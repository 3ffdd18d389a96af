"""PSNR and SSIM between images and their reconstructions: a score for each image, then the mean over images."""

import math
from collections.abc import Iterable

import torch
from torch import Tensor
from torchmetrics.functional.image import peak_signal_noise_ratio, structural_similarity_index_measure

from darkroom.errors import DarkroomError

PEAK = 255.0
WINDOW = 11  # pixels, of SSIM


def _check(images: Tensor, others: Tensor) -> None:
    if images.dtype != torch.uint8 or others.dtype != torch.uint8 or images.shape != others.shape or images.ndim != 4:
        raise DarkroomError(
            f"images and reconstructions must be uint8 (N, C, H, W) of one shape, not {images.dtype} "
            f"{tuple(images.shape)} and {others.dtype} {tuple(others.shape)}."
        )


def psnr(images: Tensor, others: Tensor) -> Tensor:
    """Return 10 log10(255² / MSE) in dB for each pair of uint8 images (N, C, H, W); (N,), float64.

    The MSE is over C, H and W. Identical images, whose ratio is infinite, get the highest finite value that images of
    their size can have, that of one grey level in one value: 10 log10(255² C H W).
    """
    _check(images, others)
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
    _check(images, others)
    if min(images.shape[2:]) < WINDOW:
        raise DarkroomError(f"SSIM needs images of at least {WINDOW} pixels a side, not {tuple(images.shape[2:])}.")
    # float64: variances are differences of large squares.
    each = structural_similarity_index_measure(
        others.double(), images.double(), data_range=PEAK, reduction="none", sigma=1.5, kernel_size=WINDOW
    )
    return torch.as_tensor(each).reshape(len(images))


def _summary(name: str, values: list[float]) -> dict[str, float]:
    """Return the mean and its standard error, s / sqrt(n) with s² the unbiased variance; 0 for a single image."""
    count = len(values)
    mean = math.fsum(values) / count
    variance = math.fsum((value - mean) ** 2 for value in values) / max(1, count - 1)
    return {name: mean, f"{name}_se": math.sqrt(variance / count)}


def image_scores(pairs: Iterable[tuple[Tensor, Tensor]]) -> dict[str, float]:
    """Return `psnr` (dB) and `ssim`, each the mean over all images, of batches of (images, reconstructions).

    Beside each its standard error over the images, `psnr_se` and `ssim_se`.

    Raises:
        DarkroomError: there is no image.
    """
    each_psnr: list[float] = []
    each_ssim: list[float] = []
    for images, others in pairs:
        each_psnr += psnr(images, others).tolist()
        each_ssim += ssim(images, others).tolist()
    if not each_psnr:
        raise DarkroomError("there is no image to compare: check that the split is not empty.")
    return _summary("psnr", each_psnr) | _summary("ssim", each_ssim)
