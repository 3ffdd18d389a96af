"""Objectives: how data are made noisy, what a network predicts of them, and the loss of that.

Time t runs from the data, 0, to noise, in units of the objective. A new objective is a class as `Objective` describes
it, a line in `OBJECTIVES`, and its name, keys and solvers in `darkroom.diffusion.settings`.
"""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from darkroom.diffusion.denoiser import Denoised, Threshold
from darkroom.diffusion.flow import Flow
from darkroom.diffusion.gaussian import Gaussian
from darkroom.diffusion.settings import Diffusion


class Objective(Protocol):
    """What a diffusion network is trained for, and what its output means. Data x are (N, C, ...), times (N,)."""

    @property
    def duration(self) -> float:
        """The time of pure noise."""
        ...

    @property
    def outputs(self) -> int:
        """Channels of the network's output for each channel of x."""
        ...

    def times(self, uniform: NDArray[np.floating], normal: NDArray[np.floating] | None = None) -> Tensor:
        """Return times in training for random numbers, (N,).

        Args:
            uniform: in [0, 1), (N,).
            normal: standard normal numbers, (N,), where they are drawn by themselves; None: those of `uniform`.
        """
        ...

    def timesteps(self, t: Tensor) -> Tensor:
        """Return times as the networks embed them, (N,), for pure noise about 1000."""
        ...

    def add_noise(self, x0: Tensor, noise: Tensor, t: Tensor) -> Tensor:
        """Return x_t of data and standard normal noise, both (N, C, ...)."""
        ...

    def losses(
        self, output: Tensor, x0: Tensor, noise: Tensor, x: Tensor, t: Tensor, threshold: Threshold | None = None
    ) -> dict[str, Tensor]:
        """Return `loss`, which is trained, and its terms where it has several, (N,) each, float32.

        Args:
            output: of the network for x and t.
            x0: the data.
            noise: in x.
            x: x_t.
            t: its times.
            threshold: applied to a predicted x0 where the loss needs one.
        """
        ...

    def denoised(self, output: Tensor, x: Tensor, t: Tensor, threshold: Threshold | None = None) -> Denoised:
        """Return what an output says of x_t."""
        ...

    def scored(self, found: Denoised, gradient: Tensor, t: Tensor) -> Denoised:
        """Return x_0, and the velocity where there is one, with a gradient added to the score.

        The score of x_t = α x_0 + σ ε is -ε / σ = (α x_0 - x_t) / σ². With g more of it ε becomes ε - σ g, x_0 becomes
        x_0 + σ² / α g, and the velocity α' x_0 + σ' ε becomes v + (α' σ² / α - σ σ') g.

        Args:
            found: of x_t.
            gradient: g, (N, C, ...); where α is 0, x_t says nothing of any y, and it counts as 0.
            t: the times, (N,).
        """
        ...


OBJECTIVES: dict[str, Callable[[Diffusion, int], Objective]] = {"flow": Flow.of, "gaussian": Gaussian.of}


def objective_of(settings: Diffusion, timesteps: int) -> Objective:
    """Return the objective of a section of params.yaml; `timesteps` is the length of a Gaussian noise schedule."""
    return OBJECTIVES[settings.objective](settings, timesteps)


def stored_objective(metadata: Mapping[str, Any], default: str) -> Objective:
    """Return the objective of a trained network by its manifest; `default` where the manifest names none."""
    return objective_of(*stored_diffusion(metadata, default))


def stored_diffusion(metadata: Mapping[str, Any], default: str) -> tuple[Diffusion, int]:
    """Return the section that a trained network's manifest holds, and the length of its Gaussian noise schedule."""
    prediction = dict(metadata.get("prediction", {}))
    timesteps = prediction.pop("timesteps", metadata.get("timesteps", 1000))
    return Diffusion(**{"objective": metadata.get("objective", default), **prediction}), timesteps
