"""The sections that `train_classifier` reads."""

from pydantic import model_validator

from darkroom.models.generators.dit.settings import DiTDiffusion
from darkroom.params.run import Run
from darkroom.params.section import Fraction, Positive, Rate, Section, Warmup, Weight
from darkroom.params.training import Training

CLASSIFIER = "models/classifier"  # the value of `sample_generator.dit.classifier` that asks for this training


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

    @model_validator(mode="after")
    def _divisible(self) -> "ClassifierModel":
        if self.width % self.heads or self.width % 4:
            raise ValueError(f"width ({self.width}) must be a multiple of heads ({self.heads}) and of 4")
        return self


class ClassifierTraining(Training):
    """The training of the classifier."""

    images: Positive = 38_400
    learning_rate: Rate = 0.002
    warmup: Warmup = 3840
    weight_decay: Weight = 0.01
    ema_decay: Fraction = 0.98


class TrainClassifier(Section):
    """The classifier and its training."""

    model: ClassifierModel = ClassifierModel()
    """Size of the classifier."""
    training: ClassifierTraining = ClassifierTraining()
    """The keys of `training` that have another value here."""


class Noise(Section):
    """Of the generator, how its latents diffuse."""

    diffusion: DiTDiffusion


class Guided(Section):
    """Of `train_generator`, what the classifier is to guide."""

    kind: str
    dit: Noise


class Guides(Section):
    """Of the sampling of a DiT, whether a classifier guides it."""

    classifier: str


class Sampled(Section):
    """Of `sample_generator`, that of a DiT."""

    dit: Guides


class Params(Section):
    """What dvc.yaml gives to `train_classifier`."""

    run: Run
    train_classifier: TrainClassifier
    train_generator: Guided
    sample_generator: Sampled

    @property
    def idle(self) -> str | None:
        """Why nothing is trained; None: samples are guided by this classifier."""
        if self.train_generator.kind != "dit":
            return f"`train_generator.kind` is {self.train_generator.kind}, which no classifier guides"
        asked = self.sample_generator.dit.classifier
        return None if asked == CLASSIFIER else f"`sample_generator.dit.classifier` is {asked}"
