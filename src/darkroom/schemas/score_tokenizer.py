"""The sections that `score_tokenizer` reads."""

from typing import Literal

from darkroom.params import Section
from darkroom.schemas.numbers import Positive
from darkroom.schemas.run import Run


class ScoreTokenizer(Section):
    """Which images are reconstructed."""

    threads: Positive
    batch: Positive
    split: Literal["train", "val", "test"]
    grid_images: Positive


class Params(Section):
    """What dvc.yaml gives to `score_tokenizer`."""

    run: Run
    score_tokenizer: ScoreTokenizer
