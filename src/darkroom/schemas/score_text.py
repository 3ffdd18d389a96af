"""The sections that `score_text` reads."""

from darkroom.params import Section
from darkroom.schemas.run import Run
from darkroom.schemas.score_decoder import Judges
from darkroom.schemas.score_dit import InceptionOnly, ScoreDiT


class Params(Section):
    """What dvc.yaml gives to `score_text`: who judges is said once, in the section of `score_decoder`."""

    run: Run
    reference_stats: InceptionOnly
    score_decoder: Judges
    score_text: ScoreDiT
