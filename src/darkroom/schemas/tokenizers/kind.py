"""What the sections of all kinds of tokenizers share."""

from typing import Any, ClassVar

from pydantic import field_validator

from darkroom.params import Section
from darkroom.schemas.training import Training

# The kinds that make images by themselves, which `sample_tokenizer` then does.
GENERATING = ("vq_ar",)

_FIXED = {"threads", "processes", "init"}  # read before the kind is known, or dependencies of the stage
_OWN = set(Training.model_fields) - _FIXED


class Kind(Section):
    """A kind of tokenizer.

    training: keys of `train_tokenizer.common` that have another value for this kind. Not among them are `threads`,
        `processes` and `init`, which are read before the kind is known.
    """

    discrete: ClassVar[bool] = True  # whether it has codes

    training: dict[str, Any]

    @field_validator("training")
    @classmethod
    def _known(cls, values: dict[str, Any]) -> dict[str, Any]:
        if unknown := sorted(values.keys() - _OWN):
            allowed = ", ".join(sorted(_OWN))
            raise ValueError(f"`{unknown[0]}` is none of the keys that a kind may have for itself: {allowed}")
        return values

    @property
    def factor(self) -> int:
        """How many pixels, in height and in width, stand behind one place of the latent."""
        raise NotImplementedError

    def unfit(self, image_size: int, batch: int) -> str | None:
        """Return why the section does not fit images of a size, so many in an update; None: it does."""
        return None

    @property
    def labelled(self) -> bool:
        """Whether the training needs the images' classes."""
        return False
