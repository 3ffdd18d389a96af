"""Sizes of the networks by the time that there is, and how many images each training then wants to see."""

from dataclasses import dataclass, field

from darkroom.models.clip.settings import ClipTraining
from darkroom.models.decoder.settings import DecoderTraining
from darkroom.models.decoder.unet_settings import Model as UNetModel
from darkroom.models.evaluators.settings import ExtractorTraining
from darkroom.models.generators.dit.settings import Model as DiTModel
from darkroom.models.generators.settings import GeneratorTraining
from darkroom.models.prior.settings import PriorTraining
from darkroom.models.tokenizers.kl.settings import KL
from darkroom.models.tokenizers.settings import TokenizerTraining
from darkroom.params.ingest import Ingest
from darkroom.params.training import Training

# The trainings of which it chooses the length, by their defaults.
TRAININGS: dict[str, Training] = {
    "train_tokenizer": TokenizerTraining(),
    "train_extractor": ExtractorTraining(),
    "train_generator": GeneratorTraining(),
    "train_clip": ClipTraining(),
    "train_decoder": DecoderTraining(),
    "train_prior": PriorTraining(),
}
_SHAPE = DiTModel().shape


@dataclass(frozen=True)
class Tier:
    """Networks of a size that belong together.

    name: as a person reads it.
    minutes: from about how many minutes on two cores on it pays.
    size: pixels of the stored images, height and width.
    tokenizer: width of each level; each but the last halves the resolution.
    dit: width, depth and heads of the transformer.
    unet: width of each level of the decoder's U-Net, which works on latents.
    enough: images that each training should see; trainings are lengthened and shortened in this proportion, but for the
        evaluator's.
    """

    name: str
    minutes: float
    size: int
    tokenizer: tuple[int, ...]
    dit: tuple[int, int, int]
    unet: tuple[int, ...]
    enough: dict[str, int] = field(default_factory=dict)


SHORT = 0.8  # fraction of what is enough, below which a training is short
# What was enough is of 3,800 colour pictures of 32 pixels in ten classes: docs/quality.md. `small` is the default of
# params.yaml, and stands in the settings.
TIERS = (
    Tier(
        name="a first look",
        minutes=0,
        size=32,
        tokenizer=(32, 64, 64),
        dit=(128, 4, 4),
        unet=(48, 96),
        enough={
            "train_tokenizer": 12_000,
            "train_extractor": 24_000,
            "train_generator": 64_000,
            "train_clip": 20_000,
            "train_decoder": 40_000,
            "train_prior": 40_000,
        },
    ),
    Tier(
        name="small",
        minutes=20,
        size=Ingest.model_fields["image_size"].default,
        tokenizer=tuple(KL().channels),
        dit=(_SHAPE["width"], _SHAPE["depth"], _SHAPE["heads"]),
        unet=tuple(UNetModel().channels),
        enough={name: training.images for name, training in TRAININGS.items()},
    ),
    Tier(
        name="medium",
        minutes=90,
        size=32,
        tokenizer=(32, 64, 64),
        dit=(256, 8, 8),
        unet=(96, 192),
        enough={
            "train_tokenizer": 120_000,
            "train_extractor": ExtractorTraining().images,
            "train_generator": 640_000,
            "train_clip": 160_000,
            "train_decoder": 400_000,
            "train_prior": 200_000,
        },
    ),
    Tier(
        name="large, for a GPU or a night",
        minutes=600,
        size=64,
        tokenizer=(64, 128, 128),
        dit=(384, 12, 6),
        unet=(128, 256, 256),
        enough={
            "train_tokenizer": 400_000,
            "train_extractor": 200_000,
            "train_generator": 5_000_000,
            "train_clip": 400_000,
            "train_decoder": 3_000_000,
            "train_prior": 1_000_000,
        },
    ),
)
