"""The keys of params.yaml for the diffusion and the sampling of a network, shared by all networks."""

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple

from pydantic import Field, StringConstraints

from darkroom.params.fits import refuse, require_dropout
from darkroom.params.section import Fraction, Positive, Section, Weight

ScheduleName = Literal["cosine", "linear", "quadratic", "jsd", "sigmoid"]
Target = Literal["eps", "x0", "v"]
Loss = Literal["l1", "l2", "huber", "kl", "rescaled_kl"]
Variance = Literal["fixed_small", "fixed_large", "learned", "learned_range"]
VarianceRange = Literal["linear", "sigmoid"]
PathName = Literal["linear", "gvp", "vp"]
FlowTarget = Literal["velocity", "eps", "x0", "score"]
FlowWeight = Literal["none", "velocity", "velocity_clamped", "likelihood"]
Solver = Literal["euler", "heun", "euler_maruyama", "ddpm", "ddim", "dpm"]
Spacing = Literal["trailing", "leading", "linspace"]
# OpenAI's strings for timesteps: ddim and a number, or counts of equal sections, from little noise to much.
Respacing = Annotated[str, StringConstraints(pattern=r"^(ddim[1-9][0-9]*|[1-9][0-9]*(,[1-9][0-9]*)+)$")]
Steps = Positive | Respacing
Probability = Annotated[float, Field(ge=0, le=1)]
Timesteps = Annotated[int, Field(ge=2)]

# The solvers that follow each objective from noise to data; the first one makes the previews while training.
SOLVERS: dict[str, tuple[str, ...]] = {
    "flow": ("euler", "heun", "euler_maruyama", "dpm"),
    "gaussian": ("ddim", "ddpm", "dpm"),
    "mean_flow": ("euler",),
}

if TYPE_CHECKING:
    ObjectiveName = str
else:
    ObjectiveName = Literal[tuple(SOLVERS)]  # so that a new objective is a line above

# The keys of `Diffusion`, besides `objective`, that define the output of a trained network.
_PREDICTION: dict[str, set[str]] = {
    "flow": {"path", "flow_target", "time_shift", "time_units"},
    "gaussian": {"schedule", "timesteps", "target", "variance", "variance_range"},
    "mean_flow": set(),
}

# The other keys of one objective alone; with those above, a table `Section.READ_WITH`.
_FURTHER = {
    "flow": {"flow_weight"},
    "gaussian": {"loss", "bound_weight", "p2_gamma", "p2_k", "min_snr"},
}
READ_WITH_OBJECTIVE: dict[str, tuple[Any, ...]] = {
    name: ("objective", objective)
    for objective in _FURTHER
    for name in sorted(_PREDICTION[objective] | _FURTHER[objective])
} | {
    **dict.fromkeys(("time", "time_mean", "time_std"), ("objective", "flow", "mean_flow")),
    "mean_flow": ("objective", "mean_flow"),
}


class MeanFlowLoss(Section):
    """The pairs of times, the guidance in the target, and the weight of MeanFlow's loss."""

    fraction: Probability = 0.25
    """Fraction of images with two different times, the others train the velocity and are cheaper; the paper: 0.25."""
    guidance: Weight = 1.0
    """Scale of guidance in the training target, so that sampling needs no second call; 1: none."""
    mix: Fraction = 0.0
    """Weight of the network's own conditional prediction in the guided target."""
    power: Probability = 0.75
    """p of the weight 1 / (e + 0.001)^p of a squared error e; 0: none."""


class Diffusion(Section):
    """The prediction target of a network, the noise, and the weights of the losses.

    TWO_TIMES: whether the network can embed a second time, which `mean_flow` needs.
    """

    TWO_TIMES: ClassVar[bool] = True

    objective: ObjectiveName
    """flow: flow matching and stochastic interpolants; gaussian: Gaussian diffusion in a number of timesteps;
    mean_flow (only the generator dit): the average velocity between two times, for sampling in one or a few calls."""
    path: PathName = "linear"
    """flow: path from data to noise: linear, gvp (an arc, cos and sin) or vp (DDPM's, in continuous time)."""
    flow_target: FlowTarget = "velocity"
    """flow: prediction target: the velocity, eps (the noise), x0 (the data) or the score."""
    flow_weight: FlowWeight = "none"
    """flow: weight of the loss: none, the velocity's (SiT), the same with t clamped (JiT, of x0), or likelihood."""
    time: Literal["logit_normal", "uniform"] = "logit_normal"
    """flow, mean_flow: distribution of the time in training."""
    time_mean: float = 0.0
    """flow, mean_flow, logit_normal: mean of the normal variable under the logistic function."""
    time_std: Annotated[float, Field(gt=0)] = 1.0
    """flow, mean_flow, logit_normal: its standard deviation."""
    time_shift: Annotated[float, Field(gt=0)] = 1.0
    """flow: s of t -> s t / (1 + (s - 1) t), in training and sampling; above 1 more noise, for larger images."""
    time_units: Literal["thousand", "sit"] = "thousand"
    """flow: times as the network embeds them: 0, data, to 1000 (thousand), or 1, data, to 0 (sit: SiT's weights)."""
    schedule: ScheduleName = "cosine"
    """gaussian: the noise schedule."""
    target: Target = "x0"
    """gaussian: prediction target: eps (the noise), x0 (the data) or v (of both)."""
    loss: Loss = "l2"
    """gaussian: distance between prediction and target; or the variational bound (kl), or timesteps times it."""
    variance: Variance = "fixed_small"
    """gaussian: variance of a step: fixed_small (posterior), fixed_large (β), learned, or learned_range (between)."""
    variance_range: VarianceRange = "linear"
    """gaussian, learned_range: between its bounds linear, or sigmoid as DALLE2-pytorch."""
    bound_weight: Weight | Literal["rescaled"] = 0.001
    """gaussian: weight of the bound, which trains a learned variance; DiT: 1.0; rescaled: timesteps / 1000 (IDDPM)."""
    p2_gamma: Weight = 0.0
    """gaussian: power by which timesteps with little noise count less (P2); 0: equal weights."""
    p2_k: Annotated[float, Field(gt=0)] = 1.0
    """gaussian: added to the signal-to-noise ratio under that power."""
    min_snr: Annotated[float, Field(gt=0)] | None = None
    """gaussian: the largest weight of a timestep in terms of x0 (Min-SNR), 5 in the paper; null: none."""

    def _misfits(self) -> Iterator[str]:
        if self.objective == "mean_flow" and not self.TWO_TIMES:
            yield "objective is mean_flow, but only the generator dit embeds two times: set it to flow or gaussian"
        if self.flow_weight in ("velocity", "likelihood") and self.flow_target == "x0":
            yield (
                f"flow_weight {self.flow_weight} is unbounded with flow_target x0: set flow_weight to velocity_clamped"
            )
        if self.flow_weight == "likelihood" and self.flow_target == "velocity":
            yield "flow_weight likelihood needs flow_target eps or score: set flow_weight to none"
        if self.p2_gamma and self.min_snr is not None:
            yield "p2_gamma and min_snr weight the same loss: set p2_gamma to 0.0, or leave min_snr empty"
        if self.loss in ("kl", "rescaled_kl") and (self.p2_gamma or self.min_snr is not None):
            yield f"loss {self.loss} is the bound, which has its own weights: remove p2_gamma and min_snr"

    @property
    def learns_variance(self) -> bool:
        """Whether the network has a second output, for the variance."""
        return self.objective == "gaussian" and self.variance in ("learned", "learned_range")

    def prediction(self) -> dict[str, Any]:
        """Return a manifest's entries on the network's output: `objective`, and `prediction` with the keys it reads."""
        prediction = self.model_dump(include=_PREDICTION.get(self.objective, set()))
        if prediction.get("time_units") == "thousand":
            del prediction["time_units"]  # older manifests lack it
        return {"objective": self.objective, "prediction": prediction}


class Sampling(Section):
    """How a network is sampled."""

    solver: Solver
    """For flow euler, heun, euler_maruyama or dpm (DPM-Solver++); for gaussian ddim, ddpm or dpm; mean_flow: euler."""
    steps: Steps
    """Steps of the solver; ddpm, ddim: also OpenAI's ddim50, or counts by section such as 10,15,20."""
    spacing: Spacing = "trailing"
    """gaussian: timesteps from the last one on (trailing), from the first (leading), or both (linspace: OpenAI's)."""
    eta: Probability = 0.0
    """ddim: fraction of ddpm's noise that is added in each step."""
    diffusion_coefficient: Literal["sigma", "linear", "constant", "decreasing", "increasing_decreasing"] = "sigma"
    """euler_maruyama: added noise as a function of time (SiT): sigma, that of the path, or another one."""
    diffusion_scale: Annotated[float, Field(ge=0)] = 1.0
    """euler_maruyama: scale of the coefficient; for decreasing, of its cosine (SiT)."""
    last_step: Annotated[float, Field(gt=0, lt=1)] = 0.04
    """euler_maruyama: length of the last step, which adds no noise."""
    guidance: Annotated[float, Field(ge=0)] = 1.0
    """Scale of guidance, away from the network without its condition, or from a guide network; 1: none."""
    guidance_channels: Positive | None = None
    """Channels that are guided, the first ones; 3 for DiT's published scores; null: all."""
    guidance_variance: bool = False
    """gaussian: guide a learned variance too, as DALLE2-pytorch; false: use the conditional one."""
    guidance_from: Probability = 0.0
    """Start of guidance, as a fraction of the way from data to noise."""
    guidance_to: Probability = 1.0
    """End of guidance; outside, the network is called once a step."""
    guidance_schedule: Literal["constant", "linear", "cosine"] = "constant"
    """Scale from noise to data: constant, or growing from 1: linear, or cosine (slower at first)."""

    READ_WITH: ClassVar = {
        "spacing": ("solver", *SOLVERS["gaussian"]),
        "eta": ("solver", "ddim"),
        "diffusion_coefficient": ("solver", "euler_maruyama"),
        "diffusion_scale": ("solver", "euler_maruyama"),
        "last_step": ("solver", "euler_maruyama"),
        "guidance_variance": ("solver", "ddpm"),
    }

    def _misfits(self) -> Iterator[str]:
        if isinstance(self.steps, str) and self.spaced:
            yield f"steps is {self.steps}, which selects the timesteps, but spacing is {self.spacing}: remove spacing"
        if self.spacing != "trailing" and self.steps == 1 and self.solver in SOLVERS["gaussian"]:
            yield (
                f"spacing {self.spacing} places a single step at the least noise, but sampling starts at the most: "
                "set it to trailing, or steps to 2 or more"
            )
        if isinstance(self.steps, str) and self.solver not in ("ddpm", "ddim"):
            yield f"steps {self.steps} are for ddpm or ddim, but solver is {self.solver}: give a number"
        if self.guidance_from >= self.guidance_to:
            yield (
                f"guidance_from ({self.guidance_from}) must be below guidance_to ({self.guidance_to}); 0.0 and 1.0 "
                "guide everywhere"
            )

    @property
    def spaced(self) -> bool:
        """Whether the spacing is neither Darkroom's default nor that of the section."""
        return self.spacing not in ("trailing", type(self).model_fields["spacing"].default)

    @property
    def count(self) -> int:
        """The number of steps."""
        if isinstance(self.steps, int):
            return self.steps
        return sum(int(each) for each in self.steps.removeprefix("ddim").split(","))


class Misfit(NamedTuple):
    """A key of `Sampling` whose value does not fit `bound`, the value of the training's `source`, and the remedy."""

    key: str
    value: Any
    source: str
    bound: Any
    remedy: str


def misfit(sampling: Sampling, diffusion: Diffusion, timesteps: int) -> Misfit | None:
    """Return a key of the sampling that does not fit a training with `timesteps` Gaussian timesteps; None: all fit."""
    solvers = SOLVERS[diffusion.objective]
    if sampling.solver not in solvers:
        remedy = f"set the former to {' or '.join(solvers)}"
        return Misfit("solver", sampling.solver, "objective", diffusion.objective, remedy)
    if sampling.guidance_variance and not diffusion.learns_variance:
        remedy = "only a learned variance can be guided, so set the former to false"
        return Misfit("guidance_variance", True, "variance", diffusion.variance, remedy)
    if diffusion.objective == "mean_flow" and sampling.guidance != 1:
        remedy = "guidance is part of this training (`mean_flow.guidance`), so set the former to 1.0"
        return Misfit("guidance", sampling.guidance, "objective", diffusion.objective, remedy)
    if diffusion.objective == "mean_flow" and (scale := getattr(sampling, "classifier_scale", 0.0)):
        remedy = "an average velocity has no score that a classifier could guide, so set the former to 0.0"
        return Misfit("classifier_scale", scale, "objective", "mean_flow", remedy)
    if diffusion.objective != "gaussian" and sampling.spaced:
        remedy = "a flow has no timesteps, so remove the former"
        return Misfit("spacing", sampling.spacing, "objective", diffusion.objective, remedy)
    if diffusion.objective == "gaussian":
        if sampling.count > timesteps:
            return Misfit("steps", sampling.steps, "timesteps", timesteps, f"set the former to {timesteps} at most")
        if isinstance(sampling.steps, str):  # every smaller number of steps fits
            from darkroom.diffusion.spacing import timesteps_of  # NumPy takes a quarter of the time of a check

            try:
                timesteps_of(timesteps, sampling.steps, sampling.spacing)
            except ValueError as error:
                return Misfit("steps", sampling.steps, "timesteps", timesteps, str(error))
    return None


def unfit(key: str, sampling: Sampling, source: str, diffusion: Diffusion, timesteps: tuple[str, int]) -> Iterator[str]:
    """Yield why the sampling section `key` of a training does not fit its section `source`.

    `timesteps` are key and value of the length of the noise schedule.
    """
    if mismatch := misfit(sampling, diffusion, timesteps[1]):
        other = timesteps[0] if mismatch.source == "timesteps" else f"{source}.{mismatch.source}"
        yield f"{key}.{mismatch.key} is {mismatch.value}, and {other} is {mismatch.bound}: {mismatch.remedy}"


def require_sampling(
    key: Callable[[str], str],
    sampling: Sampling,
    source: str,
    diffusion: Diffusion,
    timesteps: tuple[str, int],
    dropouts: Mapping[str, float],
) -> None:
    """Check that a network is sampled as it is trained.

    `key` gives the key of params.yaml that a setting of the sampling has; `source` is the section of the training,
    `timesteps` key and value of the length of the noise schedule, `dropouts` those of the fractions of conditions that
    are dropped while training.

    Raises:
        DarkroomError: the first misfit; names its key and what to set it to.
    """
    if mismatch := misfit(sampling, diffusion, timesteps[1]):
        other = timesteps[0] if mismatch.source == "timesteps" else f"{source}.{mismatch.source}"
        refuse(f"`{key(mismatch.key)}` is {mismatch.value}, and `{other}` is {mismatch.bound}: {mismatch.remedy}.")
    for name, dropout in dropouts.items():
        require_dropout(key("guidance"), sampling.guidance, name, dropout)
