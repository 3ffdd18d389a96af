"""The sections that the stages of the prior read, and checks that they fit CLIP, the decoder and each other."""

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import Field

from darkroom.diffusion.settings import (
    Diffusion,
    ObjectiveName,
    Probability,
    Sampling,
    Solver,
    Steps,
    Timesteps,
    require_sampling,
    unfit,
)
from darkroom.models.decoder.settings import Decoding, Evaluators, Names
from darkroom.models.generators.sample_settings import Networks, ScoreGenerator
from darkroom.params.fits import require_stored
from darkroom.params.run import Run
from darkroom.params.section import Fraction, Positive, Rate, Section, Seed, Warmup
from darkroom.params.training import Optimizer, Training


class Model(Section):
    """The size of the transformer."""

    width: Positive = 64
    """Length of a token."""
    depth: Positive = 2
    """Layers of the transformer."""
    heads: Positive = 2
    """Attention heads."""
    dropout: Fraction = 0.0
    """Fraction of each layer's output dropped in training."""

    def _misfits(self) -> Iterator[str]:
        if self.width % self.heads:
            yield f"heads ({self.heads}) must divide width ({self.width})"
        if self.width % 2:
            yield f"width ({self.width}) must be even, for the sinusoids of the time"


class PriorDiffusion(Diffusion):
    """The diffusion of embeddings."""

    TWO_TIMES = False

    objective: ObjectiveName = "gaussian"
    timesteps: Timesteps = 1000
    """gaussian: length of the noise schedule."""
    text_dropout: Probability = 0.2
    """Fraction of texts replaced by a learned null text, for guidance."""

    def _misfits(self) -> Iterator[str]:
        if self.learns_variance:
            yield f"variance is {self.variance}, but a prior has one output: set it to fixed_small"


class PriorSampling(Sampling):
    """How image embeddings are sampled."""

    solver: Solver = "ddim"
    steps: Steps = 20
    candidates: Positive = 2
    """Embeddings sampled for each text; the one nearest to the text is kept."""
    batch: Positive = 64
    """Embeddings in a forward pass."""

    def _misfits(self) -> Iterator[str]:
        if self.guidance_channels is not None:
            yield "guidance_channels is for images, but the prior makes embeddings: leave it empty"


class Evaluate(PriorSampling):
    """The scored images: of validation while training, of `split` at its end."""

    seed: Seed = 2
    """Seed of the noise."""
    split: Literal["val", "test"] = "test"
    """Split that is evaluated when the training ends."""
    images: Annotated[int, Field(ge=2)] = 200
    """Captions whose embeddings are sampled."""


class PriorTraining(Training):
    """The training of the prior."""

    seed: Seed = 4
    images: Positive = 99_968
    learning_rate: Rate = 0.002
    warmup: Warmup = 8320
    optimizer: Optimizer = "muon"
    log_every: Positive = 1984
    validate_every: Positive = 9984


class TrainPrior(Section):
    """The prior, from a text to the embedding of an image, and its training."""

    model: Model = Model.model_construct()
    """Size of the transformer."""
    diffusion: PriorDiffusion = PriorDiffusion.model_construct()
    """Objective and noise schedule."""
    training: PriorTraining = PriorTraining.model_construct()
    """The keys of `training` that have another value here."""
    evaluate: Evaluate = Evaluate.model_construct()
    """Scores of validation images while training, and of `split` when it ends; a change retrains."""

    def _misfits(self) -> Iterator[str]:
        timesteps = "diffusion.timesteps", self.diffusion.timesteps
        yield from unfit("evaluate", self.evaluate, "diffusion", self.diffusion, timesteps)
        if self.evaluate.guidance != 1 and not self.diffusion.text_dropout:
            yield (
                f"evaluate.guidance is {self.evaluate.guidance}, but diffusion.text_dropout is 0: set the former to 1.0"
            )


class Params(Section):
    """What dvc.yaml gives to `train_prior`."""

    run: Run
    train_prior: TrainPrior


class SampleText(Section):
    """The captions, and the sampling of the prior; `sample_decoder` has the sampling of the U-Nets."""

    seed: Seed = 1
    """Seed of all noise; image i depends on (seed, i) alone."""
    threads: Positive = 1
    """CPU threads."""
    split: Literal["test", "val", "train"] = "test"
    """Split whose captions are the texts."""
    images: Positive | None = 256
    """Number of captions, drawn from the split; null: all."""
    prior: PriorSampling = PriorSampling.model_construct()
    """How the prior is sampled."""


class SampleParams(Section):
    """What dvc.yaml gives to `sample_text`."""

    run: Run
    train_decoder: Names
    sample_decoder: Decoding
    sample_text: SampleText


class ScoreParams(Section):
    """What dvc.yaml gives to `score_text`: the evaluators are named in the section of `score_decoder`."""

    run: Run
    reference_stats: Networks
    score_decoder: Evaluators
    score_text: ScoreGenerator


def fits(params: Any) -> None:
    """Check the sections of the prior and of the images of texts; without a CLIP there are none.

    Args:
        params: the whole of params.yaml, validated.

    Raises:
        DarkroomError: one does not fit; names its key.
    """
    if params.train_clip.source == "none":
        return
    # Without stored embeddings to train on there is no prior, and nothing to score.
    stored = {"train", "val"} <= set(params.embed_clip.store)
    splits = {"train_prior.evaluate.split": params.train_prior.evaluate.split}
    conditioned = any(unet.conditioned for unet in params.train_decoder.cascade(True).values())
    if conditioned:
        splits["sample_text.split"] = params.sample_text.split
    if stored:
        for key, split in splits.items():
            require_stored(params, key, split)
    if conditioned:
        diffusion, source = params.train_prior.diffusion, "train_prior.diffusion"
        timesteps, dropouts = f"{source}.timesteps", {f"{source}.text_dropout": diffusion.text_dropout}
        sampling = params.sample_text.prior
        require_sampling(
            "sample_text.prior.{}".format, sampling, source, diffusion, (timesteps, diffusion.timesteps), dropouts
        )
