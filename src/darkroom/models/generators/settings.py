"""The sections that `train_generator` reads."""

from typing import Annotated, Any, Literal

from pydantic import Field, create_model, model_validator

from darkroom.models.generators.kind_settings import Kind
from darkroom.models.kinds import GENERATORS
from darkroom.params.numbers import NO_FILE, Positive, Seed
from darkroom.params.overrides import merged
from darkroom.params.run import Run
from darkroom.params.section import Section
from darkroom.params.training import Training


class Evaluate(Section):
    """Scores of the averaged weights while training: a look, which decides nothing."""

    every: Annotated[int, Field(ge=0)] = 0
    """Images between evaluations; 0: none."""
    images: Annotated[int, Field(ge=2)] = 500
    """Images generated for each evaluation."""
    batch: Positive = 125
    """Images in a forward pass."""
    seed: Seed = 2
    """Seed of their initial noise."""
    extractor: str = NO_FILE
    """models/extractor: the feature network of the scores; data/none: no evaluation."""
    reference: str = NO_FILE
    """data/reference: the statistics of the real images; data/none: no evaluation."""

    @model_validator(mode="after")
    def _judged(self) -> "Evaluate":
        if self.every and NO_FILE in (self.extractor, self.reference):
            raise ValueError(
                "every is above 0, so extractor and reference must be named: models/extractor and data/reference"
            )
        return self


_sections: dict[str, Any] = {kind: (GENERATORS.load("settings", kind) | None, None) for kind in GENERATORS}


_kind: Any = (
    Literal[tuple(GENERATORS)],
    Field(description="Kind of generator; the section of its name holds its settings."),
)


# `kind`, and a section for each kind.
class TrainGenerator(create_model("Chosen", __base__=Section, kind=_kind, **_sections)):  # type: ignore[misc]
    """Which generator, and how it is trained. Only the chosen kind's section is a dependency."""

    evaluate: Evaluate = Evaluate()
    """Scores of the averaged weights while training, drawn as curves; they decide nothing."""
    training: Training
    """The keys of `training` that have another value here."""

    @property
    def chosen(self) -> Kind:
        """The section of the chosen kind."""
        section = getattr(self, self.kind)
        assert isinstance(section, Kind)  # `_chosen`
        return section

    @property
    def own_training(self) -> Training:
        """The settings of the training: `training`, with what the chosen kind has otherwise."""
        return merged(self.training, self.chosen.training, f"{self.kind}.training")

    @model_validator(mode="after")
    def _chosen(self) -> "TrainGenerator":
        if getattr(self, self.kind) is None:
            raise ValueError(f"kind is {self.kind}, and the section `{self.kind}` is missing")
        return self

    @model_validator(mode="after")
    def _trainable(self) -> "TrainGenerator":
        """Check `training` with what each kind that is there has otherwise, not only the chosen one."""
        for name in GENERATORS:
            if (section := getattr(self, name)) is not None and section.training:
                merged(self.training, section.training, f"{name}.training")
        return self

    @model_validator(mode="after")
    def _guided(self) -> "TrainGenerator":
        sampling = getattr(getattr(self, self.kind), "sampling", None)
        guidance = getattr(sampling, "guidance", 1)
        if self.evaluate.every and guidance != 1 and not self.chosen.label_dropout:
            raise ValueError(
                f"{self.kind}.sampling.guidance ({guidance}) needs a model that was trained without labels too: give "
                f"{self.kind}.diffusion.label_dropout a fraction, or set it to 1.0"
            )
        return self


class Params(Section):
    """What dvc.yaml gives to `train_generator`."""

    run: Run
    train_generator: TrainGenerator
