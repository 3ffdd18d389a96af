"""The table of objectives. To add one, implement the protocol `darkroom.diffusion.types.Objective` and list it here.

Its name, keys and solvers are defined in `darkroom.diffusion.settings`.
"""

from collections.abc import Callable, Mapping
from typing import Any

from darkroom.diffusion.flow import Flow
from darkroom.diffusion.gaussian import Gaussian
from darkroom.diffusion.mean_flow import MeanFlow
from darkroom.diffusion.settings import Diffusion
from darkroom.diffusion.types import Objective

OBJECTIVES: dict[str, Callable[[Diffusion, int], Objective]] = {
    "flow": Flow.of,
    "gaussian": Gaussian.of,
    "mean_flow": MeanFlow.of,
}


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
