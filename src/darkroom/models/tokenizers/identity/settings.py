"""The section of the tokenizer `identity`."""

from typing import ClassVar

from pydantic import model_validator

from darkroom.models.tokenizers.sections import Kind


class Identity(Kind):
    """No tokenizer: the latent of an image is the image itself, its pixels in [-1, 1]."""

    discrete: ClassVar[bool] = False

    @property
    def factor(self) -> int:
        """How many pixels stand behind one place of the latent."""
        return 1

    @model_validator(mode="after")
    def _untrained(self) -> "Identity":
        self.require_untrained()
        return self
