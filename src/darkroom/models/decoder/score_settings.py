"""The sections that `score_decoder` reads."""

from typing import Literal

from darkroom.models.generators.score_settings import Networks, ScoreGenerator
from darkroom.params.run import Run
from darkroom.params.section import NO_FILE, Section


class Evaluators(Section):
    """What an image is compared with its original and its caption by; the same for `score_text`."""

    lpips: Literal["none", "lpips"] = "none"
    """lpips: also measure the perceptual distance of each image from its original, and of images of one class."""
    vgg16: str = NO_FILE
    """For lpips, a file with torchvision's weights of VGG16; data/none: download them."""
    clip: str = "models/clip"
    """CLIP that measures the similarity of image and caption: models/clip, better one that was no condition, as a
    file like OpenAI's ViT-B-32.pt; data/none: no similarity."""
    attributes: Literal["none", "scenes"] = "none"
    """scenes: also the fractions of images whose colour, form, size and position are those of the caption."""


class ScoreDecoder(ScoreGenerator, Evaluators):
    """How the standard errors are made, and which evaluators score."""


class Params(Section):
    """What dvc.yaml gives to `score_decoder`."""

    run: Run
    reference_stats: Networks
    score_decoder: ScoreDecoder
