"""Few calls of a network, each in the place of several guided steps of its teacher: where they begin and end.

Progressive distillation (Salimans and Ho, 2022, arXiv 2202.00512) with all of its halvings in one, and guidance
distilled with it (Meng et al., 2022, arXiv 2210.03142).
"""

from collections.abc import Callable
from copy import deepcopy
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from darkroom.device import in_float32, to_device
from darkroom.diffusion.flow import Flow
from darkroom.diffusion.gaussian import Gaussian
from darkroom.diffusion.samplers import follow, levels_at, through, times_of
from darkroom.diffusion.spacing import timesteps_of
from darkroom.diffusion.types import Denoise, Denoised

Network = TypeVar("Network", bound=nn.Module)


def student_of(teacher: Network) -> Network:
    """Return a copy of a network without dropout: a regression to what the teacher, without any, has found."""
    student = deepcopy(teacher)
    for module in student.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    return student


class FewCalls:
    """K calls from noise to data, each in the place of ceil(steps / K) steps of a solver without noise of its own.

    A call leads from x_t to x_r, where the solver leads from x_t. Of a flow it says the mean velocity between, so
    Euler's method in K steps follows the solver: L = || v(x_t, t) - (x_r - x_t) / (r - t) ||². Of a Gaussian it says
    the x̃ from which DDIM's step leads there, x_r = α_r x̃ + σ_r / σ_t (x_t - α_t x̃): L = max(SNR_t, 1) || x̂ - x̃ ||²
    (Salimans and Ho, section 4 and appendix G).

    Args:
        objective: of the network.
        solver: of the teacher.
        steps: of the teacher, from noise to data.
        calls: K.
    """

    def __init__(self, objective: Any, solver: str, steps: int, calls: int) -> None:
        assert isinstance(objective, Flow | Gaussian)  # the stages see to it
        self.objective, self.solver = objective, solver
        self.ways = _ways(objective, -(-steps // calls), calls)
        self.ends = torch.stack([way[[0, -1]] for way in self.ways])
        self._of_x0 = _of_x0(objective, self.ends) if isinstance(objective, Gaussian) else None

    @property
    def steps(self) -> int:
        """The steps of all calls together."""
        return sum(len(way) - 1 for way in self.ways)

    def drawn(self, uniform: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return the number of each image's call, from 0, for numbers in [0, 1), both (N,)."""
        return (uniform * len(self.ways)).astype(np.int64)

    def starts(self, call: NDArray[np.int64], device: torch.device) -> Tensor:
        """Return the times at which the calls of images begin, (N,)."""
        return to_device(self.ends[torch.from_numpy(call), 0], device)

    def reached(self, x: Tensor, call: NDArray[np.int64], denoise_of: Callable[[Tensor], Denoise]) -> Tensor:
        """Return where the solver leads each image by the end of its call, (N, C, ...), float32.

        Args:
            x: x_t, (N, C, ...).
            call: of each image, on the CPU.
            denoise_of: the teacher under the conditions of some rows, int64.
        """
        found = torch.empty_like(x)
        order = np.argsort(call, kind="stable")
        counts = np.bincount(call, minlength=len(self.ways)).tolist()
        for way, rows in zip(self.ways, to_device(order, x.device).split(counts), strict=True):
            if len(rows):
                with torch.no_grad(), in_float32(x.device):
                    found[rows] = follow(through(self.solver, self.objective, way), denoise_of(rows), x[rows])
        return found

    def learned(
        self,
        network: Callable[[Tensor, Tensor], Tensor],
        x0: Tensor,
        noise: Tensor,
        call: NDArray[np.int64],
        denoise_of: Callable[[Tensor], Denoise],
    ) -> Tensor:
        """Return the loss of each image, (N,), float32, of data under noise where its call begins.

        Args:
            network: of x_t and the timesteps, under the conditions of all rows.
            x0: data, (N, C, ...).
            noise: of the same shape.
            call: of each image, on the CPU.
            denoise_of: the teacher under the conditions of some rows, int64.
        """
        time = self.starts(call, x0.device)
        x = self.objective.add_noise(x0, noise, time)
        reached = self.reached(x, call, denoise_of)
        output = network(x, self.objective.timesteps(time))
        return self.losses(self.objective.denoised(output, x, time), x, reached, call)

    def losses(self, found: Denoised, x: Tensor, reached: Tensor, call: NDArray[np.int64]) -> Tensor:
        """Return the loss of each image, (N,), float32.

        Args:
            found: what the network says of x.
            x: x_t, (N, C, ...).
            reached: x_r, of the same shape.
            call: of each image, on the CPU.
        """
        table = self.ends if self._of_x0 is None else self._of_x0
        numbers = to_device(table[torch.from_numpy(call)], x.device)
        columns = numbers.reshape(*numbers.shape, *(1,) * (x.ndim - 1)).unbind(1)
        inside = tuple(range(1, x.ndim))
        if self._of_x0 is None:
            start, end = columns
            assert found.velocity is not None  # that of a flow
            return (found.velocity - (reached - x) / (end - start)).square().mean(dim=inside)
        of_end, of_start, weight = columns
        return weight.flatten() * (found.x0 - of_end * reached - of_start * x).square().mean(dim=inside)

    def of_each(self, losses: Tensor, call: NDArray[np.int64]) -> dict[str, Tensor]:
        """Return `loss_call_1`, … of the images of each call, from noise on."""
        rows = [to_device(call == number, losses.device) for number in range(len(self.ways))]
        return {f"loss_call_{number + 1}": losses[each] for number, each in enumerate(rows)}


def _of_x0(objective: Gaussian, ends: Tensor) -> Tensor:
    """Return a and b of x̃ = a x_r + b x_t, and max(SNR_t, 1), for the ends (K, 2) of calls: float32 (K, 3)."""
    (alpha, alpha_end), (sigma, sigma_end) = (
        each.view(-1, 2).unbind(1) for each in levels_at(objective, ends.flatten())
    )
    ratio = sigma_end / sigma
    of_end = 1 / (alpha_end - ratio * alpha)
    return torch.stack([of_end, -ratio * of_end, (alpha / sigma).square().clamp(min=1)], dim=1).float()


def _ways(objective: Flow | Gaussian, steps: int, calls: int) -> list[Tensor]:
    """Return the times that the teacher passes in each call, (steps + 1,) each; of a Gaussian, -1 stands for data."""
    if isinstance(objective, Flow):
        fine = times_of(objective, calls * steps)
        return [fine[at : at + steps + 1] for at in range(0, calls * steps, steps)]
    ends = [*timesteps_of(len(objective.schedule), calls).tolist(), -1]
    between = (np.linspace(*pair, steps + 1).round().astype(np.int64) for pair in pairwise(ends))
    return [torch.from_numpy(np.unique(way)[::-1].copy()) for way in between]  # no timestep twice
