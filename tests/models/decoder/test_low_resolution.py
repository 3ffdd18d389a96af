import numpy as np
import torch

from darkroom.models.decoder.sample import blurred, downsampled, noised, upsampled
from models.decoder.small_unets import normals


def test_smaller_and_larger() -> None:
    images = normals(0, 2, 3, 8, 8)
    area = downsampled(images, 4)
    np.testing.assert_allclose(area[1, 2, 3, 0], images[1, 2, 6:8, 0:2].double().mean(), rtol=1e-5)
    assert torch.equal(downsampled(images, 2, "nearest"), images[..., ::4, ::4])
    assert downsampled(images, 8) is images
    large = upsampled(area, 8)
    assert large.shape == images.shape
    assert torch.equal(downsampled(large, 4, "nearest"), area)
    assert torch.equal(large[..., 0, 0], large[..., 1, 1])


def test_each_image_is_blurred_by_its_own_width() -> None:
    from scipy.ndimage import correlate1d

    images, sigma = normals(0, 3, 2, 7, 7), torch.tensor([0.3, 0.6, 1.5])
    found = blurred(images, sigma, 5)
    for number in range(3):
        weights = np.exp(-(np.arange(-2, 3.0) ** 2) / (2 * float(sigma[number]) ** 2))
        weights /= weights.sum()
        expected = images[number].double().numpy()
        for axis in (1, 2):
            expected = correlate1d(expected, weights, axis=axis, mode="mirror")
        np.testing.assert_allclose(found[number].numpy(), expected, atol=1e-6)


def test_noise_keeps_the_variance() -> None:
    images, noise, level = normals(0, 3, 1, 4, 4), normals(1, 3, 1, 4, 4), torch.tensor([0.0, 0.5, 1.0])
    found = noised(images, noise, level)
    assert torch.equal(found[0], images[0])
    assert torch.equal(found[2], noise[2])
    expected = 0.75**0.5 * images[1].double() + 0.5 * noise[1].double()
    torch.testing.assert_close(found[1].double(), expected, atol=1e-6, rtol=1e-6)
    assert noised(normals(2, 3, 5), normals(3, 3, 5), level).shape == (3, 5)
