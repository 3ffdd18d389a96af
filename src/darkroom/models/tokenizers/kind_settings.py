"""What the sections of all kinds of tokenizers share."""

from typing import Annotated, ClassVar

from pydantic import AfterValidator, Field

from darkroom.params import kinds
from darkroom.params.section import Positive

# Every latent is compared with all codes, and `score_tokenizer` counts each of them.
_MOST_CODES = 2**20


def _countable(codes: int) -> int:
    if codes > _MOST_CODES:
        raise ValueError(f"a codebook has {_MOST_CODES:,} codes at most, for every latent is compared with all")
    return codes


Codes = Annotated[int, Field(ge=2), AfterValidator(_countable)]


class Kind(kinds.Kind):
    """A kind of tokenizer."""

    discrete: ClassVar[bool] = True  # whether it has codes
    trained: bool = True
    """false: the weights of `training.init` are taken as they are."""
    grid_images: Positive = 10
    """Images in a grid while training, each with its reconstruction; ten a row."""

    @property
    def factor(self) -> int:
        """How many pixels, in height and in width, stand behind one spatial position of the latent."""
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

    def require_untrained(self) -> None:
        """Check that nothing is asked of a training, which a kind without a recipe has not.

        Raises:
            ValueError: something is; names the key.
        """
        if self.training or not self.trained:
            raise ValueError("nothing is trained, so `training` is {}, and `trained` is not given")
        if self.grid_images != type(self).model_fields["grid_images"].default:
            raise ValueError("nothing is trained, so there are no grids while training: leave `grid_images` out")

    @property
    def whole_batch(self) -> bool:
        """Whether a loss is of the batch as a whole, which `run.micro_batch` then does not cut."""
        return False

    @property
    def labelled(self) -> bool:
        """Whether the training needs the images' classes."""
        return False
