"""The section that `count_labels` reads."""

from typing import Literal

from darkroom.params.run import Run
from darkroom.params.section import PartNames, Section


class CountLabels(Section):
    """Which labels are counted."""

    parts: PartNames
    """Parts whose images are counted."""
    split: Literal["train", "val", "test"] = "train"
    """Split that is counted."""


class Params(Section):
    """The parameters of `count_labels`, as dvc.yaml lists them."""

    run: Run
    count_labels: CountLabels
