"""Types shared by objectives, denoisers and samplers: the protocol of an objective, and a network's prediction.

An objective defines how noise is added to data, what a network predicts, and the loss. Time t runs from the data, 0,
to noise, in units of the objective.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

LEAST_SIGNAL = 1e-4  # α below which x_t is noise alone, and no gradient of a classifier counts

# From x (N, C, ...), timesteps (N,) and, for self-conditioning, the x0 of the step before, to the output (N, K, ...).
Network = Callable[[Tensor, Tensor, Tensor | None], Tensor]


class Denoised(NamedTuple):
    """A network's prediction from x_t, float32.

    x0: the data, (N, C, ...).
    velocity: dx_t/dt, (N, C, ...), where the objective's time is continuous.
    variance: the input from which `bound.log_variance` computes log σ², (N, C, ...), where the network learns it.
    """

    x0: Tensor
    velocity: Tensor | None = None
    variance: Tensor | None = None


# From x_t (N, C, ...), t (N,) in the objective's units, and the x0 of the step before; None at the first step.
Denoise = Callable[[Tensor, Tensor, Tensor | None], Denoised]
Threshold = Callable[[Tensor], Tensor]
# From x_t (N, C, ...) and timesteps (N,), as networks embed them, to log p(y | x_t) of the requested y, (N,).
LogProbability = Callable[[Tensor, Tensor], Tensor]


class Objective(Protocol):
    """The training objective of a network, and the meaning of its output. Data x are (N, C, ...), times (N,)."""

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
            normal: standard normal numbers, (N,), if drawn separately; None: those of `uniform`.
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

        `output` is the network's for x = x_t and t; `threshold` is applied to a predicted x0 where the loss needs one.
        """
        ...

    def denoised(self, output: Tensor, x: Tensor, t: Tensor, threshold: Threshold | None = None) -> Denoised:
        """Return the prediction that an output at x_t encodes."""
        ...

    def scored(self, denoised: Denoised, gradient: Tensor, t: Tensor) -> Denoised:
        """Return x_0, and the velocity where there is one, with a gradient added to the score.

        The score of x_t = α x_0 + σ ε is -ε / σ = (α x_0 - x_t) / σ². With g added, ε becomes ε - σ g, x_0 becomes
        x_0 + σ² / α g, and the velocity α' x_0 + σ' ε becomes v + (α' σ² / α - σ σ') g. Where α is 0, x_t does not
        depend on y, and g, (N, C, ...), counts as 0.
        """
        ...
