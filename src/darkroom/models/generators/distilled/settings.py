"""The sections that `train_distilled` reads."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from darkroom.models.generators.dit.settings import DiTGenerated
from darkroom.params.run import Run
from darkroom.params.section import NO_FILE, Fraction, Positive, Rate, Section, Warmup
from darkroom.params.training import Training

NOT_ASKED = "`train_distilled.kind` is none"


class DistilledTraining(Training):
    """The training of the few calls, whose weights begin as the generator's."""

    images: Positive = 32_000
    learning_rate: Rate = 0.0005
    warmup: Warmup = 1600
    ema_decay: Fraction = 0.99


class TrainDistilled(Section):
    """Whether and how a trained generator is distilled into a few calls."""

    kind: Literal["none", "dit"] = "none"
    """dit: distil what `sample_generator.dit` says, which then draws with few calls; none: nothing is distilled."""
    calls: Annotated[int, Field(ge=1, le=16)] = 4
    """Calls of the network from noise to an image."""
    training: DistilledTraining = DistilledTraining()
    """The keys of `training` that have another value here."""

    @model_validator(mode="after")
    def _is_read(self) -> "TrainDistilled":
        if self.kind == "none" and self.calls != type(self).model_fields["calls"].default:
            raise ValueError(f"calls is {self.calls}, and kind is none: set the latter to dit, or take calls out")
        if self.kind == "none" and (self.training.init.folder != NO_FILE or self.training.init.url is not None):
            raise ValueError(
                f"training.init names weights, and kind is none: set the latter to dit, or init to {NO_FILE}"
            )
        return self


class Conditions(Section):
    """Of `train_generator`, what its condition is read from."""

    captions: str = NO_FILE
    embeddings: str = NO_FILE


class Nothing(Section):
    """The section of no generator."""


class Sampled(Section):
    """Of `sample_generator` the section that `kind` names: how the teacher draws."""

    dit: DiTGenerated | None = None
    none: Nothing | None = None


def few_calls(calls: int) -> DiTGenerated:
    """Return how what was distilled into so many calls is sampled."""
    return DiTGenerated(solver="euler", steps=calls, guidance=1.0)


class Params(Section):
    """What dvc.yaml gives to `train_distilled`."""

    run: Run
    train_distilled: TrainDistilled
    train_generator: Conditions
    sample_generator: Sampled

    @property
    def idle(self) -> str | None:
        """Why nothing is trained; None: there is something to distil."""
        return NOT_ASKED if self.train_distilled.kind == "none" else None
