"""The sections that `score_decoder` reads."""

from typing import Literal

from darkroom.params import Section
from darkroom.schemas.run import Run
from darkroom.schemas.score_dit import InceptionOnly, ScoreDiT


class Judges(Section):
    """What an image is compared with its original and its caption by; the same for `score_text`."""

    lpips: Literal["none", "lpips"]
    vgg16: str
    clip: str
    attributes: Literal["none", "scenes"]


class ScoreDecoder(ScoreDiT, Judges):
    """How the standard errors are made, and who judges."""


class Params(Section):
    """What dvc.yaml gives to `score_decoder`."""

    run: Run
    reference_stats: InceptionOnly
    score_decoder: ScoreDecoder
