"""The sections that `train_generator` reads."""

from pydantic import model_validator

from darkroom.models.generators.kind_settings import READ
from darkroom.models.kinds import GENERATORS
from darkroom.params.evaluate import EvaluateGenerator
from darkroom.params.kinds import of_kinds
from darkroom.params.run import Run
from darkroom.params.section import NO_FILE, Fraction, Positive, Rate, Section, Warmup
from darkroom.params.training import Schedule, Training

NO_GENERATOR = "`train_generator.kind` is none"

_sections = {kind: GENERATORS.load("settings", kind) for kind in GENERATORS}


class GeneratorTraining(Training):
    """The training of a generator."""

    images: Positive = 240_000
    learning_rate: Rate = 0.002
    schedule: Schedule = "wsd"
    warmup: Warmup = 19_968
    ema_decay: Fraction = 0.995
    log_every: Positive = 4800
    validate_every: Positive = 24_000


class TrainGenerator(of_kinds(_sections, "generator")):  # type: ignore[misc]
    """Which generator, and how it is trained."""

    training: GeneratorTraining = GeneratorTraining()
    """The keys of `training` that have another value here."""
    embeddings: str = NO_FILE
    """data/embeddings: stored embeddings of CLIP, which the conditions image, text and tokens read; data/none: none."""
    captions: str = NO_FILE
    """data/shards: the images' captions, which the condition caption reads; data/none: none."""
    evaluate: EvaluateGenerator = EvaluateGenerator()
    """Scores of the averaged weights while training, drawn as curves; they decide nothing."""

    @property
    def generates(self) -> bool:
        """Whether there is a generator: one that is trained here, or whose published weights are imported."""
        return GENERATORS.has("recipe", self.kind) or GENERATORS.has("imported", self.kind)

    @model_validator(mode="after")
    def _conditioned(self) -> "TrainGenerator":
        condition = self.chosen.condition
        key = f"{self.kind}.model.condition" if hasattr(self.chosen, "model") else "kind"
        value = condition if hasattr(self.chosen, "model") else self.kind
        if condition in READ and self.embeddings == NO_FILE:
            raise ValueError(
                f"{key} is {value}, which is read from stored embeddings, and train_generator.embeddings is {NO_FILE}: "
                "set the latter to data/embeddings"
            )
        if condition not in READ and self.embeddings != NO_FILE:
            raise ValueError(
                f"train_generator.embeddings is {self.embeddings}, and {key} is {value}, which reads none: set the "
                f"former to {NO_FILE}{'' if key == 'kind' else f', or {key} to ' + ', '.join(READ)}"
            )
        if condition == "caption" and self.captions == NO_FILE:
            raise ValueError(
                f"{key} is caption, and train_generator.captions is {NO_FILE}: set the latter to data/shards"
            )
        if condition != "caption" and self.captions != NO_FILE:
            raise ValueError(
                f"train_generator.captions is {self.captions}, and {key} is {value}, which reads none: set the former "
                f"to {NO_FILE}{'' if key == 'kind' else f', or {key} to caption'}"
            )
        return self

    @model_validator(mode="after")
    def _guided(self) -> "TrainGenerator":
        sampling = getattr(self.chosen, "sampling", None)
        guidance = getattr(sampling, "guidance", 1)
        if self.evaluate.every and guidance != 1 and not self.chosen.label_dropout:
            raise ValueError(
                f"{self.kind}.sampling.guidance ({guidance}) needs a model that was trained without labels too, and "
                + (
                    f"{self.kind}.model.condition is none: set the former to 1.0"
                    if self.chosen.condition == "none"
                    else f"{self.kind}.diffusion.label_dropout is 0: give it a fraction, or set the former to 1.0"
                )
            )
        return self

    @model_validator(mode="after")
    def _ordered(self) -> "TrainGenerator":
        if getattr(self.chosen, "balance", 0.0) and not self.own_training.shuffle:
            raise ValueError(
                f"{self.kind}.balance is an order, and training.shuffle false is another: set balance to 0.0, or "
                "shuffle to true"
            )
        return self

    @model_validator(mode="after")
    def _imported_once(self) -> "TrainGenerator":
        if not GENERATORS.has("recipe", self.kind) and self.training.processes > 1:
            raise ValueError(
                f"kind is {self.kind}, which is not trained: set `train_generator.training.processes` to 1"
            )
        return self


class Params(Section):
    """What dvc.yaml gives to `train_generator`."""

    run: Run
    train_generator: TrainGenerator

    @property
    def idle(self) -> str | None:
        """Why nothing is trained; None: it is."""
        kind = self.train_generator.kind
        if not self.train_generator.generates:
            return NO_GENERATOR
        return None if GENERATORS.has("recipe", kind) else "published weights are taken as they are"
