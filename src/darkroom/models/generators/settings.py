"""The sections that the trainings of the generator, its classifier and its few calls read."""

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import Field

from darkroom.models.generators.dit.settings import DiTDiffusion, DiTGenerated
from darkroom.models.generators.kind_settings import READ, NoSampling
from darkroom.models.kinds import GENERATORS
from darkroom.params.kinds import of_kinds
from darkroom.params.run import Run
from darkroom.params.section import NO_FILE, Fraction, Positive, Rate, Section, Warmup, Weight
from darkroom.params.training import EvaluateGenerator, Schedule, Training

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

    training: GeneratorTraining = GeneratorTraining.model_construct()
    """The keys of `training` that have another value here."""
    embeddings: str = NO_FILE
    """data/embeddings: stored embeddings of CLIP, which the conditions image, text and tokens read; data/none: none."""
    captions: str = NO_FILE
    """data/shards: the images' captions, which the condition caption reads; data/none: none."""
    evaluate: EvaluateGenerator = EvaluateGenerator.model_construct()
    """Scores of the averaged weights while training, drawn as curves, without effect on the training."""

    @property
    def generates(self) -> bool:
        """Whether there is a generator, trained here or imported from published weights."""
        return GENERATORS.has("recipe", self.kind) or GENERATORS.has("imported", self.kind)

    def _misfits(self) -> Iterator[str]:
        condition, trained = self.chosen.condition, GENERATORS.has("recipe", self.kind)
        where = (
            f"{self.kind}.model.condition is {condition}" if hasattr(self.chosen, "model") else f"kind is {self.kind}"
        )
        for key, readers, folder in (("embeddings", READ, "data/embeddings"), ("captions", ["caption"], "data/shards")):
            value, name = getattr(self, key), f"train_generator.{key}"
            if condition in readers and value == NO_FILE:
                yield f"{where}, which is read from {folder}, but {name} is {NO_FILE}: set it to {folder}"
            if condition not in readers and value != NO_FILE:
                yield f"{name} is {value}, but {where}, which reads none: set the former to {NO_FILE}"
        guidance = getattr(getattr(self.chosen, "sampling", None), "guidance", 1)
        if self.evaluate.every and guidance != 1 and not self.chosen.label_dropout:
            other = "model.condition is none" if condition == "none" else f"{self.chosen.dropout_key} is 0"
            yield f"{self.kind}.sampling.guidance is {guidance}, but {self.kind}.{other}: set the former to 1.0"
        if not trained and self.training.processes > 1:
            yield f"kind is {self.kind}, which is not trained: set `train_generator.training.processes` to 1"


class Params(Section):
    """What dvc.yaml gives to `train_generator`."""

    run: Run
    train_generator: TrainGenerator

    @property
    def idle(self) -> str | None:
        """The reason why nothing is trained, or None."""
        kind = self.train_generator.kind
        if not self.train_generator.generates:
            return NO_GENERATOR
        return None if GENERATORS.has("recipe", kind) else "published weights are taken as they are"


CLASSIFIER = "models/classifier"  # the value of `sample_generator.dit.classifier` that needs this training


class ClassifierModel(Section):
    """A small transformer over patches of a noisy latent."""

    width: Positive = 64
    """Length of a token."""
    depth: Positive = 2
    """Transformer blocks."""
    heads: Positive = 4
    """Attention heads."""
    patch: Positive = 2
    """Latent pixels, height and width, of a token."""

    def _misfits(self) -> Iterator[str]:
        if self.width % self.heads or self.width % 4:
            yield f"width ({self.width}) must be a multiple of heads ({self.heads}) and of 4"


class ClassifierTraining(Training):
    """Training settings of the classifier."""

    images: Positive = 38_400
    learning_rate: Rate = 0.002
    warmup: Warmup = 3840
    weight_decay: Weight = 0.01
    ema_decay: Fraction = 0.98


class TrainClassifier(Section):
    """The classifier and its training."""

    model: ClassifierModel = ClassifierModel.model_construct()
    """Size of the classifier."""
    training: ClassifierTraining = ClassifierTraining.model_construct()
    """The keys of `training` that have another value here."""


class Noise(Section):
    """The part of the generator's section with the diffusion of its latents."""

    diffusion: DiTDiffusion


class Guided(Section):
    """The part of `train_generator` that the classifier guides."""

    kind: str
    dit: Noise


class ClassifierParams(Section):
    """What dvc.yaml gives to `train_classifier`."""

    run: Run
    train_classifier: TrainClassifier
    train_generator: Guided
    sample_generator: dict[str, Any]  # whether a classifier guides a DiT

    @property
    def idle(self) -> str | None:
        """The reason why nothing is trained; None: this classifier guides samples."""
        if self.train_generator.kind != "dit":
            return f"`train_generator.kind` is {self.train_generator.kind}, which no classifier guides"
        classifier = self.sample_generator["dit"]["classifier"]
        return None if classifier == CLASSIFIER else f"`sample_generator.dit.classifier` is {classifier}"


NOT_ASKED = "`train_distilled.kind` is none"


class DistilledTraining(Training):
    """The training of the distilled network, initialised with the generator's weights."""

    images: Positive = 32_000
    learning_rate: Rate = 0.0005
    warmup: Warmup = 1600
    ema_decay: Fraction = 0.99


class TrainDistilled(Section):
    """Whether and how a trained generator is distilled into a few calls."""

    kind: Literal["none", "dit"] = "none"
    """dit: distil the sampling of `sample_generator.dit` into few calls; none: nothing is distilled."""
    calls: Annotated[int, Field(ge=1, le=16)] = 4
    """Calls of the network from noise to an image."""
    training: DistilledTraining = DistilledTraining.model_construct()
    """The keys of `training` that have another value here."""

    READ_WITH = {"calls": ("kind", "dit"), "training.init": ("kind", "dit")}


class Conditions(Section):
    """The part of `train_generator` with the source of its condition."""

    captions: str = NO_FILE
    embeddings: str = NO_FILE


class TeacherSampling(Section):
    """The section of `sample_generator` that `kind` names: how the teacher samples."""

    dit: DiTGenerated | None = None
    none: NoSampling | None = None


def few_calls(calls: int) -> DiTGenerated:
    """Return the sampling settings of a network distilled into `calls` calls."""
    return DiTGenerated(solver="euler", steps=calls, guidance=1.0)


class DistilledParams(Section):
    """What dvc.yaml gives to `train_distilled`."""

    run: Run
    train_distilled: TrainDistilled
    train_generator: Conditions
    sample_generator: TeacherSampling

    @property
    def idle(self) -> str | None:
        """The reason why nothing is trained, or None."""
        return NOT_ASKED if self.train_distilled.kind == "none" else None
