"""The sections that `code` reads: what chooses among kinds."""

from darkroom.params.run import Run
from darkroom.params.section import Section


class Chosen(Section):
    """Of a section with kinds, the one that is chosen."""

    kind: str


class Params(Section):
    """What dvc.yaml gives to `code`."""

    run: Run
    train_generator: Chosen
    train_tokenizer: Chosen
