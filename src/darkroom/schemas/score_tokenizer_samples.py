"""The sections that `score_tokenizer_samples` reads."""

from darkroom.params import Section
from darkroom.schemas.run import Run
from darkroom.schemas.score_dit import InceptionOnly, ScoreDiT


class Params(Section):
    """What dvc.yaml gives to `score_tokenizer_samples`."""

    run: Run
    reference_stats: InceptionOnly
    score_tokenizer_samples: ScoreDiT
