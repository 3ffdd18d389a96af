"""The sections that `score_tokenizer` reads."""

from typing import Literal

from darkroom.params.inception import Inception
from darkroom.params.numbers import Positive
from darkroom.params.run import Run
from darkroom.params.section import Section


class ScoreTokenizer(Section):
    """Which images are reconstructed, and whether LPIPS is measured, by weights of VGG16."""

    threads: Positive
    batch: Positive
    split: Literal["train", "val", "test"]
    grid_images: Positive
    lpips: Literal["none", "lpips"]
    vgg16: str


class Extractors(Section):
    """Of `reference_stats`, the networks that score, and where the weights of FID's come from."""

    extractors: list[Literal["in_domain", "inception"]]
    inception: Inception


class Params(Section):
    """What dvc.yaml gives to `score_tokenizer`."""

    run: Run
    reference_stats: Extractors
    score_tokenizer: ScoreTokenizer
