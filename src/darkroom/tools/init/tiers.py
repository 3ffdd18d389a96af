"""Sizes of the networks by the time that there is, and how many images each training then wants to see."""

from collections.abc import Mapping
from typing import NamedTuple

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


class Tier(NamedTuple):
    """Networks of a size that belong together.

    enough: images that each training should see; trainings are lengthened and shortened in this proportion, but for the
        evaluator's.
    """

    name: str  # as a person reads it
    minutes: float  # from about how many minutes on two cores on it pays
    size: int  # pixels of the stored images, height and width
    tokenizer: tuple[int, ...]  # width of each level; each but the last halves the resolution
    dit: tuple[int, int, int]  # width, depth and heads of the transformer
    unet: tuple[int, ...]  # width of each level of the decoder's U-Net, which works on latents
    enough: Mapping[str, int]


def _enough(*images: int) -> dict[str, int]:
    """Return the images of each training, in the order of TRAININGS."""
    return dict(zip(TRAININGS, images, strict=True))


SHORT = 0.8  # fraction of what is enough, below which a training is short
# What was enough is of 3,800 colour pictures of 32 pixels in ten classes: docs/quality.md. `small` is the default of
# params.yaml, and stands in the settings.
_SIZE, _KL, _UNET = Ingest.model_fields["image_size"].default, tuple(KL().channels), tuple(UNetModel().channels)
_DEFAULT = [training.images for training in TRAININGS.values()]
_FIRST = _enough(12_000, 24_000, 64_000, 20_000, 40_000, 40_000)
_MEDIUM = _enough(120_000, ExtractorTraining().images, 640_000, 160_000, 400_000, 200_000)
_LARGE = _enough(400_000, 200_000, 5_000_000, 400_000, 3_000_000, 1_000_000)
TIERS = (
    Tier("a first look", 0, 32, (32, 64, 64), (128, 4, 4), (48, 96), _FIRST),
    Tier("small", 20, _SIZE, _KL, (_SHAPE["width"], _SHAPE["depth"], _SHAPE["heads"]), _UNET, _enough(*_DEFAULT)),
    Tier("medium", 90, 32, (32, 64, 64), (256, 8, 8), (96, 192), _MEDIUM),
    Tier("large, for a GPU or a night", 600, 64, (64, 128, 128), (384, 12, 6), (128, 256, 256), _LARGE),
)
