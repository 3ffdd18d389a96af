"""The sections that `catalog` and `code` read."""

from typing import Any

from darkroom.params.parts import Parts
from darkroom.params.run import Run
from darkroom.params.section import Fraction, Positive, Section


class Catalog(Section):
    """What to show of the data, and how much damage is allowed."""

    threads: Positive = 1
    """CPU threads."""
    grid_images: Positive = 64
    """Images in the grid that shows the data; no training reads it."""
    max_quarantined: Fraction = 0.05
    """Largest fraction of a part's samples that may be quarantined; more fail the stage, before any training."""


# What a stage is given of the section of another, which validates it.
Given = dict[str, Any]


class Params(Section):
    """What dvc.yaml gives to `catalog`."""

    run: Run
    parts: Parts
    catalog: Catalog
    train_tokenizer: Given
    train_generator: Given | None = None


class CodeParams(Section):
    """What dvc.yaml gives to `code`: what chooses among kinds."""

    run: Run
    train_generator: Given
    train_tokenizer: Given
