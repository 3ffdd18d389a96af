"""Settings of every training: its length, learning rate and seed. Progress is counted in images.

The section `training` of params.yaml holds what all trainings share. Each stage's own `training` overrides it, and the
one of a kind of tokenizer or of a U-Net overrides both. A stage's defaults, in a class of its own, come last.
"""

import math
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Annotated, Any, Literal

from pydantic import Field, create_model

from darkroom.params.section import NO_FILE, Betas, Fraction, Positive, Rate, Section, Seed, Sha256, Warmup

Schedule = Literal["constant", "linear", "cosine", "one_cycle", "exponential", "piecewise", "wsd"]


Optimizer = Literal["adamw", "muon"]


class Milestone(Section):
    """A learning rate, as a fraction of the highest, that holds from a number of images on."""

    images: Positive
    """Images seen from which the fraction holds."""
    rate: Annotated[float, Field(ge=0)]
    """Learning rate, as a fraction of the highest."""


class Init(Section):
    """Initial weights in place of random ones, for fine-tuning."""

    folder: str = NO_FILE
    """A folder with weights, for example models/tokenizer of another run; data/none: none."""
    url: str | None = None
    """An fsspec URL of a weights file: https://…, hf://OWNER/NAME@REVISION/FILE, s3://…; null: none."""
    sha256: Sha256 | None = None
    """SHA-256 of the file behind the URL."""
    skip: list[str] = []
    """Globs of weights to initialise at random even if the file has them."""

    def _misfits(self) -> Iterator[str]:
        if self.url is not None and self.folder != NO_FILE:
            yield f"set folder or url, not both: {NO_FILE} means no folder"


class Training(Section):
    """The settings of the training loop, the same for every model."""

    seed: Seed = 0
    """Seed of the order of images, the noise and the initial weights."""
    threads: Positive = 1
    """CPU threads per process."""
    share_cores: bool = False
    """Halve the threads when other processes use the cores, until the stage ends; weights then depend on the load."""
    processes: Positive = 1
    """Processes that share each batch, one per device."""
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    """fp32, or autocast to bf16, or to fp16 with a loss scaler; with bf16, Muon also orthogonalises in bf16."""
    tf32: bool = False
    """On NVIDIA GPUs: multiply float32 with 10 mantissa bits instead of 23 in training passes."""
    compile: bool = False
    """torch.compile, with fixed shapes."""
    channels_last: bool = False
    """The memory layout that is fastest for convolutions on GPUs."""
    images: Positive
    """Length of the training, in images seen."""
    shuffle: bool | Literal["groups"] = True
    """true: a new random order in each epoch; groups: one image of each group in an epoch; false: the stored order."""
    batch: Positive = 64
    """Images per optimizer step, over all processes."""
    learning_rate: Rate
    """Highest learning rate of the schedule."""
    schedule: Schedule = "one_cycle"
    """Learning rate schedule."""
    warmup: Warmup = 0
    """Images until the learning rate reaches its highest value."""
    final_rate: Fraction = 0.0
    """linear, cosine, exponential, wsd: final learning rate, as a fraction of the highest."""
    schedule_images: Positive | None = None
    """linear, cosine, exponential, one_cycle: images after which the final learning rate holds; null: all images."""
    milestones: list[Milestone] = []
    """piecewise: a list of `images: N, rate: FRACTION`; from N images on, this fraction of the highest rate."""
    decay_fraction: Annotated[float, Field(gt=0, lt=1)] = 0.2
    """wsd: fraction of all images, at the end, over which the learning rate decays."""
    optimizer: Optimizer = "adamw"
    """muon: Muon for weights of layers with at least 16 inputs and outputs, AdamW for the rest."""
    muon_chunks: bool = False
    """muon: orthogonalise the matrices of a fused layer, such as queries, keys and values, separately."""
    betas: Betas = (0.9, 0.99)
    """Betas of AdamW."""
    eps: Annotated[float, Field(gt=0)] = 1e-8
    """Epsilon of AdamW, added to the root of the second moment."""
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    """Decoupled weight decay; not applied to norms, biases and embeddings."""
    clip_norm: Annotated[float, Field(gt=0)] | None = 1.0
    """Largest gradient norm; null: no clipping."""
    ema_decay: Fraction = 0.99
    """Decay of the averaged weights (EMA) per optimizer step; 0: no average."""
    ema_warmup: bool = True
    """Start with a smaller decay, (1 + n) / (10 + n); false: ema_decay from the first step, as in DiT."""
    ema_start: Annotated[int, Field(ge=0)] = 0
    """Images seen before averaging starts; until then the averaged weights are the weights themselves."""
    ema_every: Positive = 1
    """Optimizer steps between updates of the averaged weights."""
    save_every: Positive | None = None
    """Images between sets of weights to keep, raw and averaged; null: only the final weights."""
    select: Literal["last", "best"] = "last"
    """Averaged weights to write: the last, or those with the lowest validation loss (best)."""
    init: Init = Init.model_construct()
    """Fine-tuning: initial weights."""
    log_every: Positive = 640
    """Images between points of the loss curve."""
    validate_every: Positive = 3200
    """Images between validations."""

    @property
    def kept_images(self) -> list[int]:
        """Images seen by each set of weights that `save_every` keeps before the end, in order."""
        if self.save_every is None:
            return []
        due = range(self.save_every, self.images, self.save_every)
        return sorted({images for each in due if (images := -(-each // self.batch) * self.batch) < self.images})

    @property
    def decay_start(self) -> int:
        """Images after which `wsd` decays the learning rate."""
        steps = self.images // self.batch
        return (steps - max(1, int(self.decay_fraction * steps))) * self.batch

    READ_WITH = {
        "milestones": ("schedule", "piecewise"),
        "final_rate": ("schedule", "linear", "cosine", "exponential", "wsd"),
        "schedule_images": ("schedule", "linear", "cosine", "exponential", "one_cycle"),
        "muon_chunks": ("optimizer", "muon"),
    }

    def _misfits(self) -> Iterator[str]:
        if self.images % self.batch:
            yield f"images ({self.images}) must be a multiple of batch ({self.batch})"
        if self.batch % self.processes:
            yield f"batch ({self.batch}) must be a multiple of processes ({self.processes})"
        if self.share_cores and self.processes > 1:
            yield "share_cores is for one process: set processes to 1"
        if self.ema_start >= self.images:
            yield f"ema_start ({self.ema_start}) must be below images ({self.images})"
        if self.warmup >= self.images:
            yield f"warmup ({self.warmup}) must be below images ({self.images})"
        if self.schedule == "piecewise" and not self.milestones:
            yield "schedule piecewise needs milestones"
        if self.schedule == "exponential" and not self.final_rate:
            yield "schedule exponential needs a final_rate above 0"
        if self.schedule_images and not self.warmup < self.schedule_images <= self.images:
            yield (
                f"schedule_images ({self.schedule_images}) must be above warmup ({self.warmup}) and at most images "
                f"({self.images})"
            )
        if self.schedule == "wsd" and self.warmup > self.decay_start:
            yield (
                f"schedule wsd decays after {self.decay_start} images (decay_fraction {self.decay_fraction}), before "
                f"the warmup ({self.warmup}) ends: shorten one of them"
            )
        if any(a.images >= b.images for a, b in pairwise(self.milestones)):
            yield "milestones must be in ascending order of images"


class Evaluate(Section):
    """Scores of the averaged weights during training, for information only."""

    every: Annotated[int, Field(ge=0)] = 0
    """Images between evaluations; 0: none."""
    images: Annotated[int, Field(ge=4)] = 500
    """Images generated for each evaluation."""
    batch: Positive = 125
    """Images per forward pass."""
    extractor: str = NO_FILE
    """models/extractor: the feature network of the scores; data/none: no evaluation."""

    def _misfits(self) -> Iterator[str]:
        if self.every and self.extractor == NO_FILE:
            yield "every is above 0, so extractor must be set: models/extractor"


class EvaluateGenerator(Evaluate):
    """Scores of the averaged weights during training, for information only."""

    seed: Seed = 2
    """Seed of the noise of the generated images."""
    reference: str = NO_FILE
    """data/reference: the statistics of the real images; data/none: no evaluation."""

    def _misfits(self) -> Iterator[str]:
        if self.every and self.reference == NO_FILE:
            yield "every is above 0, so reference must be set: data/reference"


def with_shared(shared: Mapping[str, Any], section: Mapping[str, Any]) -> dict[str, Any]:
    """Return a stage's section with its `training` completed from the shared section `training`."""
    own = section.get("training") or {}
    return {**section, "training": {**shared, **own} if isinstance(own, Mapping) else own}


# The section `training`: any of these keys but `init`, which is a dependency of one stage.
_shared: dict[str, Any] = {
    name: (Any if field.annotation is None else Annotated[field.annotation, field], None)
    for name, field in Training.model_fields.items()
    if name != "init"
}
SharedTraining = create_model("SharedTraining", __base__=Section, __doc__="Keys shared by all trainings.", **_shared)


# ---------------------------------------------------------------------------------------------------------------------
# Learning rates as functions of the images seen

# The one-cycle policy starts at 1/25 of the highest rate and ends at 1/250000 of it, as torch's OneCycleLR does
# (Smith and Topin, "Super-convergence", 2018).
_START, _END = 1 / 25, 1 / 250_000


def _cosine(start: float, end: float, fraction: float) -> float:
    """Return start + (end - start) * (1 - cos(pi * fraction)) / 2."""
    return start + (end - start) * (1 - math.cos(math.pi * fraction)) / 2


def _fraction(settings: Training, images: int) -> float:
    """Return the progress from the end of the warm-up to the end of the schedule: 0 before, 1 after it."""
    end = settings.schedule_images or settings.images
    return min(1.0, max(0.0, (images - settings.warmup) / (end - settings.warmup)))


def _scheduled(settings: Training, images: int) -> float:
    """Return the learning rate after `images` images, without the linear warm-up."""
    top, final = settings.learning_rate, settings.final_rate
    match settings.schedule:
        case "constant":
            return top
        case "linear":
            return top * (1 - (1 - final) * _fraction(settings, images))
        case "cosine":  # Loshchilov and Hutter, "SGDR", 2017
            return _cosine(top, top * final, _fraction(settings, images))
        case "one_cycle":
            if images < settings.warmup:
                return _cosine(top * _START, top, images / settings.warmup)
            return _cosine(top, top * _END, _fraction(settings, images))
        case "exponential":
            return top * final ** _fraction(settings, images)
        case "piecewise":
            rates = [milestone.rate for milestone in settings.milestones if milestone.images <= images]
            return top * (rates[-1] if rates else 1.0)
        case "wsd":  # Hägele et al., 2024, arXiv 2405.18392: nothing depends on the start of the decay before it
            start = settings.decay_start
            progress = max(0, images - start) / (settings.images - start)
            return top * (1 - (1 - final) * math.sqrt(progress))


def learning_rate(settings: Training, images: int) -> float:
    """Return the learning rate of the optimizer step after `images` images.

    Every schedule but one_cycle, which rises in its own way, is multiplied by a linear warm-up, images / warmup: 0 in
    the first step. linear, cosine and exponential start to fall when the warm-up ends, and end at `schedule_images`;
    piecewise counts from the first image, wsd falls at the end.
    """
    rate = _scheduled(settings, images)
    if settings.schedule == "one_cycle" or images >= settings.warmup:
        return rate
    return rate * (images / settings.warmup)
