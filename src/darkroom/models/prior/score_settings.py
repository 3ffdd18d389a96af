"""The sections that `score_text` reads."""

from darkroom.models.decoder.score_settings import Evaluators
from darkroom.models.generators.score_settings import Networks, ScoreGenerator
from darkroom.params.run import Run
from darkroom.params.section import Section


class Params(Section):
    """What dvc.yaml gives to `score_text`: the evaluators are named in the section of `score_decoder`."""

    run: Run
    reference_stats: Networks
    score_decoder: Evaluators
    score_text: ScoreGenerator
