"""The section of the tokenizer `patches`."""

from typing import ClassVar

from darkroom.models.tokenizers.sections import Kind
from darkroom.params.section import Positive


class Patches(Kind):
    """Patches to vectors and back."""

    discrete: ClassVar[bool] = False

    patch: Positive = 4
    """Pixels, height and width, behind one spatial position of the latent."""
    latent_channels: Positive = 4
    """Channels of the latent."""

    @property
    def factor(self) -> int:
        """Pixels, height and width, behind one spatial position of the latent."""
        return self.patch
