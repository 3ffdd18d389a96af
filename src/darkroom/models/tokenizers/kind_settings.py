"""What the sections of all kinds of tokenizers share."""

from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, Field, field_validator

from darkroom.params.overrides import OWN_TRAINING, Overrides, require_known
from darkroom.params.section import Section

# Every latent is compared with all codes, and `score_tokenizer` counts each of them.
_MOST_CODES = 2**20


def _countable(codes: int) -> int:
    if codes > _MOST_CODES:
        raise ValueError(f"a codebook has {_MOST_CODES:,} codes at most, for every latent is compared with all")
    return codes


Codes = Annotated[int, Field(ge=2), AfterValidator(_countable)]


class Kind(Section):
    """A kind of tokenizer.

    training: keys of `train_tokenizer.training` that have another value for this kind. Not among them are `threads`,
        `processes` and `init`, which are read before the kind is known.
    """

    discrete: ClassVar[bool] = True  # whether it has codes

    training: Overrides = Field(default_factory=dict)
    """The keys of `train_tokenizer.training` that have another value for this kind."""

    @field_validator("training")
    @classmethod
    def _known(cls, values: dict[str, Any]) -> dict[str, Any]:
        return require_known(values, OWN_TRAINING, "a kind")

    @property
    def factor(self) -> int:
        """How many pixels, in height and in width, stand behind one place of the latent."""
        raise NotImplementedError

    def unfit(self, image_shape: tuple[int, int, int], batch: int) -> str | None:
        """Return why the section does not fit batches of images of shape (C, H, W); None: it does."""
        return None

    def too_few(self, codes: int, image_size: int, batch: int) -> str | None:
        """Return why k-means cannot make so many codes of the latents of a batch; None: it can."""
        side = image_size // self.factor
        latents = batch * side**2
        if latents >= codes:
            return None
        return (
            f"`codebook_size` is {codes:,}, and k-means begins with the vectors of one batch, which are {latents:,} "
            f"({batch} images of {side} x {side}): take a larger `batch`, a smaller codebook, or `kmeans_init: false`"
        )

    @property
    def whole_batch(self) -> bool:
        """Whether a loss is of the batch as a whole, which `run.micro_batch` then does not cut."""
        return False

    @property
    def labelled(self) -> bool:
        """Whether the training needs the images' classes."""
        return False
