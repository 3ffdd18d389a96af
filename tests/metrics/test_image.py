import math

import numpy as np
import pytest
import torch
from torch import Tensor

from darkroom.errors import DarkroomError
from darkroom.metrics.image import BASIC, RGBA, error, image_scores, ms_ssim, psnr, psnr_visible, rows, ssim


def pair(n: int = 5, channels: int = 3, side: int = 20) -> tuple[Tensor, Tensor]:
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (n, channels, side, side))
    noise = rng.normal(size=images.shape) * np.arange(1, n + 1).reshape(n, 1, 1, 1) * 6
    others = np.clip(np.round(images + noise), 0, 255)
    return torch.tensor(images, dtype=torch.uint8), torch.tensor(others, dtype=torch.uint8)


def ssim_oracle(x: np.ndarray, y: np.ndarray) -> float:
    """Wang et al. 2004 on one channel, float64, reflected at the borders, variances in two passes."""
    x, y = (np.pad(image, 5, mode="reflect") for image in (x, y))
    line = np.exp(-((np.arange(11) - 5.0) ** 2) / (2 * 1.5**2))
    window = np.outer(line, line) / line.sum() ** 2
    values = []
    for i in range(x.shape[0] - 10):
        for j in range(x.shape[1] - 10):
            a, b = x[i : i + 11, j : j + 11], y[i : i + 11, j : j + 11]
            ma, mb = (window * a).sum(), (window * b).sum()
            va, vb = (window * (a - ma) ** 2).sum(), (window * (b - mb) ** 2).sum()
            cov = (window * (a - ma) * (b - mb)).sum()
            c1, c2 = (0.01 * 255) ** 2, (0.03 * 255) ** 2
            values.append((2 * ma * mb + c1) * (2 * cov + c2) / ((ma**2 + mb**2 + c1) * (va + vb + c2)))
    return float(np.mean(values))


def test_psnr_is_the_formula_for_each_image() -> None:
    images, others = pair()
    error = ((images.double() - others.double()) ** 2).mean((1, 2, 3))
    np.testing.assert_allclose(
        psnr(images, others), 10 * torch.log10(255**2 / error), atol=1e-5
    )  # it takes log 255 in float32


@pytest.mark.parametrize("channels", [1, 3])
def test_ssim_is_the_papers(channels: int) -> None:
    images, others = pair(2, channels)
    found = ssim(images, others)
    for i in range(2):
        exact = [ssim_oracle(images[i, c].double().numpy(), others[i, c].double().numpy()) for c in range(channels)]
        assert float(found[i]) == pytest.approx(np.mean(exact), abs=1e-9)


def test_identical_images_are_as_good_as_the_smallest_error() -> None:
    images, _ = pair(2)
    almost = images.clone()
    almost[1, 0, 0, 0] += 1 if almost[1, 0, 0, 0] < 255 else -1
    same, one_level = psnr(images, almost).tolist()
    assert math.isfinite(same) and same == pytest.approx(one_level, abs=1e-5)
    assert ssim(images, images).tolist() == pytest.approx([1, 1], abs=1e-12)


@pytest.mark.parametrize("batch", [1, 2, 5])
def test_means_are_over_images_whatever_the_batches(batch: int) -> None:
    images, others = pair()
    found = image_scores(zip(images.split(batch), others.split(batch), strict=True))
    assert found["psnr"] == pytest.approx(float(psnr(images, others).mean()), rel=1e-12)
    assert found["ssim"] == pytest.approx(float(ssim(images, others).mean()), rel=1e-12)
    for name, each in (("psnr", psnr(images, others)), ("ssim", ssim(images, others))):
        assert found[f"{name}_se"] == pytest.approx(float(each.std(correction=1)) / math.sqrt(len(each)), rel=1e-9)
    pooled = 10 * math.log10(255**2 / float(((images.double() - others.double()) ** 2).mean()))
    assert found["psnr"] > pooled + 1  # not the PSNR of the pooled error


def test_what_does_not_fit_is_refused() -> None:
    images, others = pair()
    for wrong in (others[:2], others.float(), others[..., :10]):
        with pytest.raises(DarkroomError, match="uint8"):
            psnr(images, wrong)
    with pytest.raises(DarkroomError, match="at least 11 pixels"):
        ssim(images[..., :10], others[..., :10])
    with pytest.raises(DarkroomError, match="no images to compare"):
        image_scores([])


def ms_ssim_oracle(x: np.ndarray, y: np.ndarray) -> float:
    """Wang, Simoncelli, Bovik 2003 on one channel, float64, windows inside the image, variances about their means."""
    line = np.exp(-((np.arange(11) - 5.0) ** 2) / (2 * 1.5**2))
    window = np.outer(line, line) / line.sum() ** 2
    c1, c2 = (0.01 * 255) ** 2, (0.03 * 255) ** 2
    found = 1.0
    for scale, weight in enumerate((0.0448, 0.2856, 0.3001, 0.2363, 0.1333)):
        luminance, contrast = [], []
        a, b = (np.lib.stride_tricks.sliding_window_view(image, (11, 11)) for image in (x, y))
        ma, mb = (window * a).sum((2, 3)), (window * b).sum((2, 3))
        da, db = a - ma[..., None, None], b - mb[..., None, None]
        cov, va, vb = ((window * one).sum((2, 3)) for one in (da * db, da * da, db * db))
        contrast = (2 * cov + c2) / (va + vb + c2)
        luminance = (2 * ma * mb + c1) / (ma**2 + mb**2 + c1)
        found *= max(0.0, (luminance * contrast if scale == 4 else contrast).mean()) ** weight
        h, w = (side // 2 for side in x.shape)
        x, y = (image[: 2 * h, : 2 * w].reshape(h, 2, w, 2).mean((1, 3)) for image in (x, y))
    return float(found)


def test_ms_ssim_is_the_papers() -> None:
    """Noise and shift, an odd side, and in the last image the negative, whose contrast is below 0 at each scale."""
    images, others = pair(3, 2, 181)
    others[1] = images[1].roll(1, 1) // 2 + 40
    others[2] = 255 - images[2]
    found = ms_ssim(images, others)
    for i in range(3):
        exact = [ms_ssim_oracle(images[i, c].double().numpy(), others[i, c].double().numpy()) for c in range(2)]
        assert float(found[i]) == pytest.approx(np.mean(exact), abs=1e-9)
    assert found[2] == 0 < found[0] < 1
    assert float(ms_ssim(images, images).min()) == pytest.approx(1, abs=1e-12)


def test_ms_ssim_needs_its_coarsest_window() -> None:
    images, others = pair(1, 1, 176)
    assert ms_ssim(images, others).isfinite().all()
    with pytest.raises(DarkroomError, match="176 pixels a side"):
        ms_ssim(images[..., :175], others[..., :175])


def test_scores_of_transparent_images_are_of_what_is_visible() -> None:
    images, others = pair(3, 4)
    images[:, 3, :6], others[:, 3, :6] = 0, 0
    images[0, 3], images[1, 3, 6:] = 255, 255
    hidden = images.clone()
    hidden[:, :3] = torch.where(images[:, 3:] == 0, 255 - images[:, :3], images[:, :3])
    for measure in (*BASIC.values(), *RGBA.values()):
        assert torch.equal(measure(hidden, others).nan_to_num(), measure(images, others).nan_to_num())
    alpha, black = (
        images[:, 3:].double(),
        [each[:, :3] * each[:, 3:] / 255 for each in (images.double(), others.double())],
    )
    white = [each + 255 - of[:, 3:] for each, of in zip(black, (images.double(), others.double()), strict=True)]
    squares = sum((one - other).square() for one, other in (black, white)) / 2
    error = (alpha * squares).sum((1, 2, 3)) / (3 * alpha.sum((1, 2, 3)))
    np.testing.assert_allclose(psnr_visible(images, others), 10 * torch.log10(255**2 / error), atol=1e-4)
    np.testing.assert_allclose(psnr(images, others), psnr(*(each.round().byte() for each in white)), atol=1e-6)
    assert psnr_visible(images, images).tolist() == psnr(images, images).tolist()

    one, other = torch.zeros(2, 4, 4, 4, dtype=torch.uint8), torch.zeros(2, 4, 4, 4, dtype=torch.uint8)
    one[0, 3, :, 2:], other[0, 3, :, 1:] = 255, 51  # the edge lies between columns 1 and 2
    each = {name: measure(one, other).tolist() for name, measure in RGBA.items()}
    assert each["alpha_error"] == [pytest.approx((4 * 0.2 + 8 * 0.8) / 16), 0]
    assert each["alpha_edge_error"] == [pytest.approx(0.5), pytest.approx(math.nan, nan_ok=True)]
    assert each["transparent_kept"] == [0.5, 1]
    assert image_scores([(one, other)], RGBA)["alpha_edge_error"] == pytest.approx(0.5)
    one[:, 3] = 255
    assert "transparent_kept" not in image_scores([(one, other)], RGBA)


def test_the_error_is_four_times_as_bright_and_opaque() -> None:
    one = np.full((2, 4, 1, 1), 255, np.uint8)
    one[:, :3] = np.array([[10, 200, 3], [0, 255, 7]])[:, :, None, None]
    other = one.copy()
    other[:, :3] = np.array([[13, 100, 3], [63, 254, 0]])[:, :, None, None]
    assert error(one, other)[:, :, 0, 0].tolist() == [[12, 255, 0, 255], [252, 4, 28, 255]]
    assert error(one[:, :1], other[:, :1]).tolist() == [[[[12]]], [[[252]]]]
    one[:, :], other[:, :3], other[:, 3] = 0, 255, 10  # on black the error is 10, on white white stays white
    assert error(one, other)[:, :, 0, 0].tolist() == [[40, 40, 40, 255]] * 2


def test_rows_are_originals_then_reconstructions_then_errors() -> None:
    one = np.arange(5, dtype=np.uint8).reshape(5, 1, 1, 1)
    other = one + 10
    assert rows(one, other, 3).reshape(-1).tolist() == [0, 1, 2, 10, 11, 12, 40, 40, 40, 3, 4, 13, 14, 40, 40]
