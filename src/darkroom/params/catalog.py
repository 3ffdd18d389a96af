"""The sections that `catalog` and `code` read."""

from typing import Any

from darkroom.params.parts import Parts
from darkroom.params.run import Run
from darkroom.params.section import Fraction, PartNames, Positive, Section


class Catalog(Section):
    """What to show of the data, and how much damage is allowed."""

    threads: Positive = 1
    """CPU threads."""
    grid_images: Positive = 64
    """Images in the grid that shows the data; no training reads it."""
    max_quarantined: Fraction = 0.05
    """Largest fraction of a part's samples that may be quarantined; more fail the stage, before any training."""


class TokenizerParts(Section):
    """Of `train_tokenizer`, the parts that it is trained on; None: all."""

    parts: PartNames | None


class ClipCaptions(Section):
    """Of `train_clip`, what says how long a caption may be; the section of the chosen source."""

    source: str
    long_captions: str
    trained: dict[str, Any] | None = None
    pretrained: dict[str, Any] | None = None
    none: dict[str, Any] | None = None


class CaptionModel(Section):
    """Of the transformer, the most tokens that it reads of a caption; None: as many as 99 % of the captions have."""

    context_length: int | None


class CaptionTransformer(Section):
    """The section `dit` of `train_generator`."""

    model: CaptionModel


class GeneratorCaptions(Section):
    """Of `train_generator`, where its captions are (data/none: it reads none), and the most tokens of one."""

    captions: str
    dit: CaptionTransformer


class Params(Section):
    """What dvc.yaml gives to `catalog`."""

    run: Run
    parts: Parts
    catalog: Catalog
    train_tokenizer: TokenizerParts
    train_clip: ClipCaptions | None = None
    train_generator: GeneratorCaptions | None = None


class Chosen(Section):
    """Of a section with kinds, the one that is chosen."""

    kind: str


class CodeParams(Section):
    """What dvc.yaml gives to `code`: what chooses among kinds."""

    run: Run
    train_generator: Chosen
    train_tokenizer: Chosen
