"""The sections that the stages of the tokenizer read, and checks that they fit the data and each other."""

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import Field

from darkroom.models.generators.sample_settings import Networks, ScoreGenerator
from darkroom.models.kinds import TOKENIZERS
from darkroom.models.tokenizers.sections import SMALLEST, TEACHER, Perceptual
from darkroom.params.fits import refuse, refuse_both, require_dropout
from darkroom.params.kinds import of_kinds
from darkroom.params.reference_stats import ExtractorName, Inception
from darkroom.params.run import Run
from darkroom.params.section import NO_FILE, PartNames, Positive, Rate, Section, Seed, Warmup
from darkroom.params.training import Optimizer, Training

_sections = {kind: TOKENIZERS.load("settings", kind) for kind in TOKENIZERS}


class TokenizerTraining(Training):
    """The training of a tokenizer."""

    images: Positive = 48_000
    batch: Positive = 32
    learning_rate: Rate = 0.002
    warmup: Warmup = 14_400
    optimizer: Optimizer = "muon"
    log_every: Positive = 960
    validate_every: Positive = 4800


class TrainTokenizer(of_kinds(_sections, "tokenizer")):  # type: ignore[misc]
    """Which tokenizer, and how it is trained."""

    training: TokenizerTraining = TokenizerTraining.model_construct()
    """The keys of `training` that have another value here."""
    teacher: str = NO_FILE
    """Weights of the perceptual network: models/teacher; for lpips and vgg16 torchvision's file, or data/none."""
    parts: PartNames | None = None  # read by `catalog`, so other parts change nothing here
    """Parts to train on; other parts cause no retraining or encoding; null: all."""

    @property
    def perceptual(self) -> Perceptual | None:
        """The perceptual loss of the chosen kind, or None."""
        loss = getattr(self.chosen, "perceptual", None)
        return loss if isinstance(loss, Perceptual) and loss.active else None

    def _misfits(self) -> Iterator[str]:
        loss, game, training = self.perceptual, getattr(self.chosen, "adversarial", None), self.own_training
        if loss is not None and loss.network == "teacher" and self.teacher == NO_FILE:
            yield f"`{self.kind}.perceptual.network` is teacher, but `teacher` names no folder: set it to {TEACHER}"
        if loss is not None and loss.network != "teacher" and self.teacher == TEACHER:
            yield (
                f"`{self.kind}.perceptual.network` is {loss.network}, but `teacher` is {TEACHER}: set it to a file "
                f"with torchvision's weights of VGG16, or {NO_FILE} to download them"
            )
        if game is not None and game.active and game.start >= training.images:
            yield (
                f"`{self.kind}.adversarial.start` is {game.start:,}, but the training has {training.images:,} images, "
                "so the discriminator would never start: lower it"
            )
        if getattr(self.chosen, "frozen", False) and training.init.url is None and training.init.folder == NO_FILE:
            yield f"`{self.kind}.frozen` is true: name weights in `train_tokenizer.training.init`, or set it to false"
        if self.untrained and self.training.processes > 1:
            yield f"{self.untrained}, which needs one process: set `train_tokenizer.training.processes` to 1"

    @property
    def untrained(self) -> str | None:
        """The reason why nothing is trained, or None."""
        if not TOKENIZERS.has("recipe", self.kind):
            return f"`train_tokenizer.kind` is {self.kind}, which is taken as it is"
        return f"`train_tokenizer.{self.kind}.frozen` is true" if self.chosen.frozen else None


class Params(Section):
    """What dvc.yaml gives to `train_tokenizer`."""

    run: Run
    train_tokenizer: TrainTokenizer

    @property
    def idle(self) -> str | None:
        """The reason why nothing is trained, or None."""
        return self.train_tokenizer.untrained


class EncodeLatents(Section):
    """How latents are computed and stored."""

    threads: Positive = 1
    """CPU threads."""
    batch: Positive = 64
    """Images in a forward pass."""
    latents: Literal["continuous", "codes"] = "continuous"
    """continuous: the encoder's output before quantisation; codes: for a discrete tokenizer, with the codebook."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Type of stored continuous latents."""
    shift: Annotated[int, Field(ge=0, le=64)] = 0
    """Pixels by which images are moved left, right, up and down, four more latents each; 0: none. Helps small data."""


class EncodeParams(Section):
    """What dvc.yaml gives to `encode_latents`."""

    run: Run
    encode_latents: EncodeLatents


class SampleTokenizer(Section):
    """The number of images, and the sampling of their codes; read if the tokenizer generates images."""

    seed: Seed = 1
    """Seed of the noise; image i depends on (seed, i) alone."""
    threads: Positive = 1
    """CPU threads."""
    images: Positive = 1000
    """Number of images; with classes, image i has class i modulo their number."""
    batch: Positive = 125
    """Images in a forward pass, the last one padded."""
    min_p: Annotated[float, Field(ge=0, le=1)] = 0.5
    """Codes less likely than this fraction of the likeliest one are not sampled; 0: all are; genie2: 0.25."""
    temperature: Annotated[float, Field(gt=0)] = 0.7
    """Divisor of the logits; above 1 rare codes become more frequent; genie2: 1.5."""
    guidance: Annotated[float, Field(ge=0)] = 1.5
    """Scale of classifier-free guidance, with classes; 1: no guidance."""
    shard_size: Positive = 1000
    """Images in a shard."""


class SampleParams(Section):
    """What dvc.yaml gives to `sample_tokenizer`."""

    run: Run
    sample_tokenizer: SampleTokenizer


class ScoreTokenizer(Section):
    """The reconstructed images, and whether LPIPS is measured, with weights of VGG16."""

    threads: Positive = 1
    """CPU threads."""
    batch: Positive = 64
    """Images in a forward pass; results differ by about 1e-6 between values."""
    split: Literal["train", "val", "test"] = "test"
    """Split whose images are reconstructed."""
    grid_images: Positive = 32
    """Originals in the grid, with their reconstructions."""
    lpips: Literal["none", "lpips"] = "none"
    """lpips: also measure this perceptual distance, in the features of VGG16."""
    vgg16: str = NO_FILE
    """For lpips, a file with torchvision's weights of VGG16; data/none: download them."""


class Extractors(Section):
    """The part of `reference_stats` with the scoring networks, and the source of FID's weights."""

    extractors: list[ExtractorName]
    inception: Inception


class ScoreParams(Section):
    """What dvc.yaml gives to `score_tokenizer`."""

    run: Run
    reference_stats: Extractors
    score_tokenizer: ScoreTokenizer


class ScoreSamplesParams(Section):
    """What dvc.yaml gives to `score_tokenizer_samples`."""

    run: Run
    reference_stats: Networks
    score_tokenizer_samples: ScoreGenerator


SSIM_WINDOW = 11  # pixels


def fits(params: Any) -> None:
    """Check the sections of the tokenizer, its teacher, its latents, its own images and its scores.

    Args:
        params: the whole of params.yaml, validated.

    Raises:
        DarkroomError: one does not fit; names its key.
    """
    tokenizer, size = params.train_tokenizer, params.ingest.image_size
    kind = tokenizer.chosen
    if (shift := params.encode_latents.shift) >= params.ingest.image_size:
        refuse(f"`encode_latents.shift` is {shift}, but images are {params.ingest.image_size} pixels wide: lower it.")
    if params.encode_latents.latents == "codes" and not kind.discrete:
        remedy = "which has no codes: set the former to continuous, or choose a discrete kind"
        refuse_both(params, "encode_latents.latents", "train_tokenizer.kind", remedy)
    if size < SSIM_WINDOW:
        refuse(f"`ingest.image_size` is {size}, but SSIM needs at least {SSIM_WINDOW} pixels: raise it.")
    require_lpips(params, "score_tokenizer")
    if getattr(kind, "classes", False):
        source, guidance = f"train_tokenizer.{tokenizer.kind}.label_dropout", params.sample_tokenizer.guidance
        require_dropout("sample_tokenizer.guidance", guidance, source, kind.label_dropout)
    channels = len(params.ingest.channels)
    if reason := kind.unfit((channels, size, size), tokenizer.own_training.batch):
        refuse(f"`train_tokenizer.{tokenizer.kind}`: {reason}.")
    _losses_fit(params)


def require_lpips(params: Any, section: str) -> None:
    """Check that images are large enough for LPIPS, if a scoring stage measures it."""
    size, smallest = params.ingest.image_size, SMALLEST["lpips"]
    if getattr(params, section).lpips == "lpips" and size < smallest:
        refuse(f"`{section}.lpips` needs images of at least {smallest} pixels, but they have {size}: set it to none.")


def _losses_fit(params: Any) -> None:
    """Check that images are large enough for the networks of the tokenizer's losses."""
    tokenizer, size, teacher = params.train_tokenizer, params.ingest.image_size, params.train_teacher.model
    kind, section = tokenizer.chosen, f"train_tokenizer.{tokenizer.kind}"
    needed = {}  # pixels a side, and an alternative remedy
    for key, remedy in (("perceptual", "the network `teacher`"), ("adversarial", "fewer levels in its `channels`")):
        if (loss := getattr(kind, key, None)) is not None and loss.active:
            needed[f"{section}.{key}"] = loss.smallest, remedy
    if tokenizer.perceptual is not None and tokenizer.perceptual.network == "teacher":
        needed["train_teacher.model.channels"] = 2 ** (len(teacher.channels) - 1), "fewer levels"
    for key, (smallest, remedy) in needed.items():
        if size < smallest:
            refuse(
                f"`ingest.image_size` is {size}, but `{key}` needs at least {smallest} pixels a side: use larger "
                f"images, or {remedy}."
            )
