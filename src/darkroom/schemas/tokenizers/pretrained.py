"""The section of the tokenizer `pretrained`."""

from typing import Annotated, ClassVar

from pydantic import Field, model_validator

from darkroom.schemas.numbers import NO_FILE, Positive
from darkroom.schemas.tokenizers.kind import Kind


class Pretrained(Kind):
    """A published KL autoencoder in diffusers' format, taken as it is."""

    discrete: ClassVar[bool] = False
    name: Annotated[str, Field(pattern=r"^[\w.-]+/[\w.-]+$")] | None
    revision: str | None
    subfolder: str | None
    folder: str
    downsampling: Positive

    @property
    def factor(self) -> int:
        """How many pixels stand behind one place of the latent; compared with the weights before anything is made."""
        return self.downsampling

    @model_validator(mode="after")
    def _one_source(self) -> "Pretrained":
        if (self.name is None) == (self.folder == NO_FILE):
            raise ValueError(f"give a name on the Hub or a folder, not both: without a folder it is {NO_FILE}")
        if self.name is None and self.revision is not None:
            raise ValueError("a folder has no revision: leave it empty")
        if self.training:
            raise ValueError("nothing is trained, so `training` is {}")
        return self
