"""The section of the tokenizer `identity`."""

from collections.abc import Iterator
from typing import ClassVar

from darkroom.models.tokenizers.sections import Imported


class Identity(Imported):
    """No tokenizer: the latent of an image is the image itself, its pixels in [-1, 1]."""

    discrete: ClassVar[bool] = False

    @property
    def factor(self) -> int:
        """How many pixels stand behind one place of the latent."""
        return 1

    def _misfits(self) -> Iterator[str]:
        yield from self.untrained()
