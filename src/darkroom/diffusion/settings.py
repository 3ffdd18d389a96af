"""The keys of params.yaml that say how a network diffuses, and how it is sampled: the same for every network."""

from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

from pydantic import Field, model_validator

from darkroom.params.numbers import Positive, Weight
from darkroom.params.section import Section

ScheduleName = Literal["cosine", "linear", "quadratic", "jsd", "sigmoid"]
Target = Literal["eps", "x0", "v"]
Distance = Literal["l1", "l2", "huber"]
VarianceRange = Literal["linear", "sigmoid"]
Solver = Literal["euler", "heun", "ddpm", "ddim", "dpm", "unipc"]
Probability = Annotated[float, Field(ge=0, le=1)]
Timesteps = Annotated[int, Field(ge=2)]

# The solvers that follow each objective from noise to data; the first one makes the previews while training.
SOLVERS: dict[str, tuple[str, ...]] = {
    "flow": ("euler", "heun"),
    "gaussian": ("ddim", "ddpm", "dpm", "unipc"),
}

if TYPE_CHECKING:
    ObjectiveName = str
else:
    ObjectiveName = Literal[tuple(SOLVERS)]  # so that a new objective is a line above

# The keys of `Diffusion`, beside `objective`, that say what the output of a trained network means.
_PREDICTION: dict[str, set[str]] = {
    "flow": set(),
    "gaussian": {"schedule", "timesteps", "target", "learned_variance", "variance_range"},
}


class Diffusion(Section):
    """What a network is trained to predict, under which noise, and how the losses are weighted."""

    objective: ObjectiveName
    """flow: flow matching on the straight path; gaussian: Gaussian diffusion in a number of timesteps."""
    time: Literal["logit_normal", "uniform"] = "logit_normal"
    """flow: distribution of the time in training."""
    time_mean: float = 0.0
    """flow, logit_normal: mean of the normal variable under the logistic function."""
    time_std: Annotated[float, Field(gt=0)] = 1.0
    """flow, logit_normal: its standard deviation."""
    schedule: ScheduleName = "cosine"
    """gaussian: the noise schedule."""
    target: Target = "x0"
    """gaussian: what is predicted: eps (the noise), x0 (the data) or v (of both)."""
    loss: Distance = "l2"
    """gaussian: distance between prediction and target."""
    learned_variance: bool = False
    """gaussian: learn the variance of each step too, which few steps of ddpm need."""
    variance_range: VarianceRange = "linear"
    """gaussian: of a learned variance between its bounds: linear, or sigmoid as DALLE2-pytorch."""
    bound_weight: Weight = 0.001
    """gaussian: weight of the variational bound, which teaches a learned variance."""
    p2_gamma: Weight = 0.0
    """gaussian: power by which timesteps with little noise count less (P2); 0: none does."""
    p2_k: Annotated[float, Field(gt=0)] = 1.0
    """gaussian: added to the signal-to-noise ratio under that power."""
    min_snr: Annotated[float, Field(gt=0)] | None = None
    """gaussian: the largest weight of a timestep in terms of x0 (Min-SNR), 5 in the paper; null: none."""

    @model_validator(mode="after")
    def _weighted_once(self) -> "Diffusion":
        if self.p2_gamma and self.min_snr is not None:
            raise ValueError("p2_gamma and min_snr weight the same loss: set p2_gamma to 0.0, or leave min_snr empty")
        return self

    @property
    def learns_variance(self) -> bool:
        """Whether the network has a second output, for the variance."""
        return self.objective == "gaussian" and self.learned_variance

    def prediction(self) -> dict[str, Any]:
        """Return what a manifest says of the network's output: `objective`, and `prediction` with the keys it reads."""
        return {
            "objective": self.objective,
            "prediction": self.model_dump(include=_PREDICTION.get(self.objective, set())),
        }


class Sampling(Section):
    """How a network is sampled."""

    solver: Solver
    """euler or heun for flow; ddpm, ddim, dpm (DPM-Solver++) or unipc for gaussian."""
    steps: Positive
    """Steps of the solver."""
    eta: Probability = 0.0
    """ddim: fraction of ddpm's noise that is added in each step."""
    guidance: Annotated[float, Field(ge=0)] = 1.0
    """Scale of classifier-free guidance; 1: none."""

    @model_validator(mode="after")
    def _eta_is_read(self) -> "Sampling":
        if self.eta and self.solver != "ddim":
            raise ValueError(f"eta is read by the solver ddim only, and solver is {self.solver}: set it to 0.0")
        return self


class Misfit(NamedTuple):
    """A key of `Sampling` whose value does not fit `bound`, the value of the training's `source`; what to do."""

    key: str
    value: Any
    source: str
    bound: Any
    remedy: str


def misfit(sampling: Sampling, diffusion: Diffusion, timesteps: int) -> Misfit | None:
    """Return what of the sampling does not fit a training with so many Gaussian timesteps; None: all does."""
    solvers = SOLVERS[diffusion.objective]
    if sampling.solver not in solvers:
        remedy = f"set the former to {' or '.join(solvers)}"
        return Misfit("solver", sampling.solver, "objective", diffusion.objective, remedy)
    if diffusion.objective == "gaussian" and sampling.steps > timesteps:
        return Misfit("steps", sampling.steps, "timesteps", timesteps, f"set the former to {timesteps} at most")
    return None


def require_fit(key: str, sampling: Sampling, diffusion: Diffusion, timesteps: int) -> None:
    """Check a section of a training, under `key`, that samples what its section `diffusion` trains.

    Raises:
        ValueError: they do not fit each other; names the keys.
    """
    if found := misfit(sampling, diffusion, timesteps):
        raise ValueError(
            f"{key}.{found.key} is {found.value}, and diffusion.{found.source} is {found.bound}: {found.remedy}"
        )


def preview_solver(diffusion: Diffusion, timesteps: float, steps: int) -> tuple[str, int]:
    """Return the solver of previews while training, and `steps`, or as many as a Gaussian noise schedule has."""
    most = steps if diffusion.objective != "gaussian" else min(steps, int(timesteps))
    return SOLVERS[diffusion.objective][0], most
