import numpy as np
import torch

from darkroom.diffusion.denoiser import clip_x0, dynamic_threshold


def test_dynamic_thresholds_against_numpy() -> None:
    random = np.random.default_rng(0)
    x0 = random.standard_normal((5, 3, 8, 8)) * np.array([0.1, 0.5, 1, 2, 5])[:, None, None, None]
    for percentile in (0.5, 0.95, 0.995, 1.0):
        expected = np.empty_like(x0)
        for number, image in enumerate(x0):
            s = max(1.0, np.quantile(np.abs(image), percentile))
            expected[number] = np.clip(image, -s, s) / s
        found = dynamic_threshold(torch.from_numpy(x0), percentile)
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-12)


def test_an_image_within_the_range_stays() -> None:
    x0 = torch.linspace(-1, 1, 48).reshape(1, 3, 4, 4)
    assert torch.equal(dynamic_threshold(x0, 0.9), x0)
    assert torch.equal(clip_x0(2 * x0), (2 * x0).clamp(-1, 1))
