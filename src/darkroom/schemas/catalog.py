"""The sections that `catalog` reads."""

from darkroom.params import Section
from darkroom.schemas.numbers import PartNames, Positive
from darkroom.schemas.parts import Parts
from darkroom.schemas.run import Run


class Catalog(Section):
    """What to show of the data."""

    threads: Positive
    grid_images: Positive


class TokenizerParts(Section):
    """Of `train_tokenizer`, the parts that it is trained on; None: all."""

    parts: PartNames | None


class Params(Section):
    """What dvc.yaml gives to `catalog`."""

    run: Run
    parts: Parts
    catalog: Catalog
    train_tokenizer: TokenizerParts
