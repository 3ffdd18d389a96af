"""MeanFlow: the average velocity of a flow between two times (Geng et al., 2025, arXiv 2505.13447).

The path is straight: x_t = (1 - t) x_0 + t ε, with the velocity v = ε - x_0; t = 0 is data, t = 1 is noise. A network
predicts u(x_t, t, r) = 1 / (t - r) ∫ v(x_s, s) ds from r to t, so x_r = x_t - (t - r) u in one call. Times are pairs
(t, r), float32 (N, 2), t >= r.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from darkroom.diffusion.flow import Flow
from darkroom.diffusion.settings import Diffusion, MeanFlowLoss
from darkroom.diffusion.types import Denoised, Threshold

_SMALL = 1e-3  # added to the squared error in the adaptive weight
# Pure noise, as networks embed it. With the 1000 of other objectives the network's derivative by time, which is part of
# the target, is so large that trainings diverge.
_UNITS = 10

# From x (M, C, ...) and timesteps (M, 2) of some images, and their numbers in the batch (M,), to u (M, C, ...).
Predict = Callable[[Tensor, Tensor, Tensor], Tensor]


def _wide(of_images: Tensor, x: Tensor) -> Tensor:
    """Return one value for each image, (N,), in a shape that multiplies x, (N, C, ...)."""
    return of_images.view(-1, *(1,) * (x.ndim - 1))


@dataclass(frozen=True)
class MeanFlow:
    """Predicts the average velocity between two times.

    flow: the straight path, and the distribution of a time.
    loss: fraction of pairs of two times, guidance in the target, and the adaptive weight.
    """

    flow: Flow
    loss: MeanFlowLoss

    duration = 1.0
    outputs = 1

    @classmethod
    def of(cls, settings: Diffusion, timesteps: int) -> "MeanFlow":
        """Return the objective of a section of params.yaml; time is continuous, so there are no `timesteps`."""
        times = (settings.time_mean, settings.time_std) if settings.time == "logit_normal" else None
        return cls(Flow(times), getattr(settings, "mean_flow", MeanFlowLoss()))

    def times(self, uniform: NDArray[np.floating], normal: NDArray[np.floating] | None = None) -> Tensor:
        """Return times in [0, 1), (N,): see `Flow.times`; `pairs` adds the second ones."""
        return self.flow.times(uniform, normal)

    def pairs(self, first: Tensor, second: Tensor, uniform: NDArray[np.float64]) -> Tensor:
        """Return pairs of times, float32 (N, 2): the later and the earlier of two, or one time twice.

        Args:
            first: times, (N,).
            second: times, (N,).
            uniform: in [0, 1), (N,), which decides.
        """
        apart = torch.from_numpy(uniform < self.loss.fraction)
        later, earlier = torch.maximum(first, second), torch.minimum(first, second)
        return torch.stack([torch.where(apart, later, first), torch.where(apart, earlier, first)], dim=1)

    def spans(self, times: Tensor) -> Tensor:
        """Return the pairs of falling times (K + 1,) that follow each other, (K, 2)."""
        return torch.stack([times[:-1], times[1:]], dim=1)

    def timesteps(self, t: Tensor) -> Tensor:
        """Return 10 t and 10 (t - r) of pairs, (N, 2), as networks embed them."""
        return _UNITS * torch.stack([t[:, 0], t[:, 0] - t[:, 1]], dim=1)

    def add_noise(self, x0: Tensor, noise: Tensor, t: Tensor) -> Tensor:
        """Return x_t = (1 - t) x_0 + t ε, (N, C, ...), at the first times of pairs."""
        return self.flow.add_noise(x0, noise, t[:, 0])

    def trained(
        self, predict: Predict, unconditional: Predict | None, x0: Tensor, noise: Tensor, t: Tensor, conditional: Tensor
    ) -> dict[str, Tensor]:
        """Return `loss`, which is trained, and `error`, the mean squared error, (N,) each, float32.

        The target is ṽ - (t - r) (ṽ ∂u/∂x + ∂u/∂t), its derivative by forward differentiation, without a gradient. With
        guidance ω and κ, ṽ = ω v + κ u(x, t, t | y) + (1 - ω - κ) u(x, t, t), so that one call gives a guided image;
        without a condition ṽ = v. Where t = r, the target is ṽ, and nothing is differentiated. The squared error e is
        weighted by 1 / (e + 0.001)^p.

        Args:
            predict: the network under the conditions.
            unconditional: the same without conditions; None: the network has no condition, and no guidance.
            x0: data, (N, C, ...).
            noise: standard normal, of the same shape.
            t: pairs of times, (N, 2).
            conditional: where there is a condition, and it is not dropped, bool (N,).
        """
        x, velocity = self.add_noise(x0, noise, t), noise - x0
        guided = self._guided(predict, unconditional, x, velocity, t[:, :1].expand(-1, 2))
        velocity = torch.where(_wide(conditional, x), guided, velocity)
        apart = t[:, 0] != t[:, 1]
        parts = []
        for rows, of in ((torch.where(~apart)[0], self._at_once), (torch.where(apart)[0], self._between)):
            if len(rows):
                parts.append((rows, *of(predict, x[rows], velocity[rows], t[rows], rows)))
        order = torch.cat([rows for rows, _, _ in parts]).argsort()
        u, target = (torch.cat([part[place] for part in parts])[order] for place in (1, 2))
        squares = (u - target).square().flatten(1)
        total = squares.sum(dim=1)
        weight = (total.detach() + _SMALL) ** -self.loss.power
        return {"loss": weight * total, "error": squares.detach().mean(dim=1)}

    def _at_once(self, predict: Predict, x: Tensor, velocity: Tensor, t: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return u and its target where both times are the same: the velocity."""
        return predict(x, self.timesteps(t), rows).float(), velocity

    def _between(self, predict: Predict, x: Tensor, velocity: Tensor, t: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return u and its target where the times differ."""
        later, earlier = t[:, 0], t[:, 1]

        def average(x: Tensor, later: Tensor) -> Tensor:
            return predict(x, self.timesteps(torch.stack([later, earlier], dim=1)), rows).float()

        # Neither fused attention nor its backward pass has a forward derivative.
        with sdpa_kernel(SDPBackend.MATH):
            u, derivative, *_ = torch.func.jvp(average, (x, later), (velocity, torch.ones_like(later)))
        return u, velocity - _wide(later - earlier, x) * derivative.detach()

    def _guided(
        self, predict: Predict, unconditional: Predict | None, x: Tensor, velocity: Tensor, at: Tensor
    ) -> Tensor:
        """Return the guided velocity at pairs of one time twice, without a gradient."""
        scale, mix = self.loss.guidance, self.loss.mix
        if unconditional is None or (scale, mix) == (1.0, 0.0):
            return velocity
        rows = torch.arange(len(x), device=x.device)
        with torch.no_grad():
            guided = scale * velocity + (1 - scale - mix) * unconditional(x, self.timesteps(at), rows).float()
            return guided + mix * predict(x, self.timesteps(at), rows).float() if mix else guided

    def losses(
        self, output: Tensor, x0: Tensor, noise: Tensor, x: Tensor, t: Tensor, threshold: Threshold | None = None
    ) -> dict[str, Tensor]:
        """Fail: the loss needs the network's derivative, see `trained`."""
        raise NotImplementedError

    def denoised(self, output: Tensor, x: Tensor, t: Tensor, threshold: Threshold | None = None) -> Denoised:
        """Return the average velocity u, and x_0 = x_t - t u, which is exact where r is 0."""
        velocity = output.float()
        return Denoised(x - _wide(t[:, 0], x) * velocity, velocity)

    def scored(self, denoised: Denoised, gradient: Tensor, t: Tensor) -> Denoised:
        """Fail: an average velocity has no score; `misfit` refuses a classifier."""
        raise NotImplementedError
