"""What the network of a decoder or a prior predicts: how its output becomes x_0."""

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from darkroom.diffusion.gaussian import Target, VarianceRange, share_of, to_x0
from darkroom.diffusion.noise import Name, NoiseSchedule


@dataclass(frozen=True)
class Prediction:
    """What a network predicts, and under which noise.

    bounded: whether x_0 is pixels, in [-1, 1]; latents and embeddings are not.
    """

    schedule: NoiseSchedule
    target: Target
    learned_variance: bool
    variance_range: VarianceRange
    bounded: bool

    @classmethod
    def of(cls, schedule: Name, steps: int, **facts: Any) -> "Prediction":
        """Return the prediction under a schedule's name."""
        return cls(NoiseSchedule.named(schedule, steps), **facts)

    def split(self, output: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return what a network said of x_0, and the share of the log variance where it learns it."""
        if not self.learned_variance:
            return output, None
        mean, raw = output.chunk(2, dim=1)
        return mean, share_of(raw.float(), self.variance_range)

    def x0(self, mean: Tensor, x: Tensor, steps: Tensor) -> Tensor:
        """Return the x_0 that the first part of an output stands for, float32."""
        return to_x0(mean.float(), x, steps, self.schedule, self.target)
