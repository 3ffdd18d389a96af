"""The sections that `score_decoder` reads."""

from typing import Literal

from darkroom.models.generators.score_settings import InceptionOnly, ScoreGenerator
from darkroom.params.run import Run
from darkroom.params.section import Section


class Judges(Section):
    """What an image is compared with its original and its caption by; the same for `score_text`."""

    lpips: Literal["none", "lpips"]
    vgg16: str
    clip: str
    attributes: Literal["none", "scenes"]


class ScoreDecoder(ScoreGenerator, Judges):
    """How the standard errors are made, and who judges."""


class Params(Section):
    """What dvc.yaml gives to `score_decoder`."""

    run: Run
    reference_stats: InceptionOnly
    score_decoder: ScoreDecoder
