"""The sections that `score_tokenizer` reads."""

from typing import Literal

from darkroom.params.reference_stats import Inception
from darkroom.params.run import Run
from darkroom.params.section import NO_FILE, Positive, Section


class ScoreTokenizer(Section):
    """Which images are reconstructed, and whether LPIPS is measured, by weights of VGG16."""

    threads: Positive = 1
    """CPU threads."""
    batch: Positive = 64
    """Images in a forward pass; results differ by about 1e-6 between values."""
    split: Literal["train", "val", "test"] = "test"
    """Split whose images are reconstructed."""
    grid_images: Positive = 32
    """Originals beside their reconstructions in the grid."""
    lpips: Literal["none", "lpips"] = "none"
    """lpips: also measure that perceptual distance, in the features of VGG16."""
    vgg16: str = NO_FILE
    """For lpips, a file with torchvision's weights of VGG16; data/none: download them."""


class Extractors(Section):
    """Of `reference_stats`, the networks that score, and where the weights of FID's come from."""

    extractors: list[Literal["in_domain", "inception", "dinov2", "clip"]]
    inception: Inception


class Params(Section):
    """What dvc.yaml gives to `score_tokenizer`."""

    run: Run
    reference_stats: Extractors
    score_tokenizer: ScoreTokenizer
