"""The sections that `score_tokenizer_samples` reads."""

from darkroom.models.generators.score_settings import Networks, ScoreGenerator
from darkroom.params.run import Run
from darkroom.params.section import Section


class Params(Section):
    """What dvc.yaml gives to `score_tokenizer_samples`."""

    run: Run
    reference_stats: Networks
    score_tokenizer_samples: ScoreGenerator
