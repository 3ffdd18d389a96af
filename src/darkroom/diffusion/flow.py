"""Flow matching on the straight path (Lipman et al., 2022, arXiv 2210.02747; Liu et al., 2022, arXiv 2209.03003).

Time runs as in Stable Diffusion 3 and in diffusers' schedulers: t = 0 is data, t = 1 is noise.
"""

import numpy as np
from numpy.typing import NDArray
from torch import Tensor


def interpolate(data: Tensor, noise: Tensor, time: Tensor) -> Tensor:
    """Return x_t = (1 - t) * x_0 + t * noise; data and noise (N, C, H, W), time (N,)."""
    t = time[:, None, None, None]
    return (1 - t) * data + t * noise


def velocity(data: Tensor, noise: Tensor) -> Tensor:
    """Return dx_t/dt = noise - x_0, (N, C, H, W)."""
    return noise - data


def flow_matching_loss(prediction: Tensor, data: Tensor, noise: Tensor) -> Tensor:
    """Return || v(x_t, t) - (noise - x_0) ||², the mean over each image's elements, (N,), float32."""
    return (prediction.float() - velocity(data, noise)).square().mean(dim=(1, 2, 3))


def logit_normal_times(draws: NDArray[np.floating], mean: float, std: float) -> NDArray[np.float32]:
    """Return t = 1 / (1 + exp(-(mean + std * n))) for standard normal n, (N,), float32.

    Source: Esser et al., "Scaling rectified flow transformers", 2024, arXiv 2403.03206, section 3.1.
    """
    return (1 / (1 + np.exp(-(mean + std * draws.astype(np.float64))))).astype(np.float32)
