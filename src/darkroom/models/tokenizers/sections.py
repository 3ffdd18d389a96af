"""Shared sections of tokenizers: the base of a kind, losses, quantisers."""

from collections.abc import Iterator, Sequence
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field

from darkroom.params import kinds
from darkroom.params.section import Fraction, Positive, Section, Weight

# The range of pixels in a network: -1 to 1, or 0 to 1.
Pixels = Literal["signed", "unit"]

# Every latent is compared with all codes, and `score_tokenizer` counts each of them.
_MOST_CODES = 2**20


def _countable(codes: int) -> int:
    if codes > _MOST_CODES:
        raise ValueError(f"a codebook has at most {_MOST_CODES:,} codes: each latent is compared with every code")
    return codes


Codes = Annotated[int, Field(ge=2), AfterValidator(_countable)]


def undivided(groups: int, widths: Sequence[int]) -> Iterator[str]:
    """Yield the widths of channels that the groups of the group norms do not divide."""
    for width in widths:
        if width % groups:
            yield f"norm_groups ({groups}) must divide every width in channels, not {width}"


class Imported(kinds.Kind):
    """A kind of tokenizer that is used without training; trained kinds have further keys: `Kind`."""

    discrete: ClassVar[bool] = True  # whether it has codes

    @property
    def factor(self) -> int:
        """The downsampling factor of the latent, in height and in width."""
        raise NotImplementedError

    def unfit(self, image_shape: tuple[int, int, int], batch: int) -> str | None:
        """Return why the section does not fit batches of images of shape (C, H, W); None: it does."""
        return None

    def too_few(self, codes: int, image_size: int, batch: int) -> str | None:
        """Return why k-means cannot make this many codes from the latents of a batch; None: it can."""
        side = -(-image_size // self.factor)
        latents = batch * side**2
        if latents >= codes:
            return None
        return (
            f"`codebook_size` is {codes:,}, but k-means starts from the vectors of one batch, which are {latents:,} "
            f"({batch} images of {side} x {side}): use a larger `batch`, a smaller codebook, or `kmeans_init: false`"
        )

    def untrained(self) -> Iterator[str]:
        """Yield the misfit of training settings, which a kind without a recipe does not support."""
        if self.training:
            yield "nothing is trained, so `training` must be {}"

    @property
    def whole_batch(self) -> bool:
        """Whether a loss needs the whole batch, which `run.micro_batch` then does not split."""
        return False


class Kind(Imported):
    """A kind of tokenizer that is trained."""

    frozen: bool = False
    """true: use the weights of `training.init` without training."""
    grid_images: Positive = 10
    """Images in a grid while training, each with its reconstruction; ten a row."""

    @property
    def labelled(self) -> bool:
        """Whether the training needs the images' classes."""
        return False


class Identity(Imported):
    """No tokenizer: the latent of an image is the image itself, its pixels in [-1, 1]."""

    discrete: ClassVar[bool] = False

    @property
    def factor(self) -> int:
        """The downsampling factor of the latent."""
        return 1

    def _misfits(self) -> Iterator[str]:
        yield from self.untrained()


WINDOW = 4  # pixels, side of the window of the discriminator's last layer, at its lowest resolution

SMALLEST = {"lpips": 16, "vgg16": 32}  # pixels a side, so that one is left at the coarsest compared level

TEACHER = "models/teacher"  # the output of train_teacher

Network = Literal["none", "teacher", "lpips", "vgg16"]


class Perceptual(Section):
    """A distance in the features of a frozen network, whose weights `train_tokenizer.teacher` names."""

    network: Network = "none"
    """Frozen network: teacher (models/teacher), lpips or vgg16 (features of VGG16, as in MUSE); weights: `teacher`."""
    weight: Weight = 0.0
    """Weight of the perceptual loss; 0.0: none."""

    @property
    def active(self) -> bool:
        """Whether there is a perceptual loss."""
        return self.network != "none" and self.weight > 0

    @property
    def smallest(self) -> int:
        """The smallest side of images that it can compare, in pixels: one is left after the network's poolings."""
        return SMALLEST.get(self.network, 1)

    def _misfits(self) -> Iterator[str]:
        if self.network == "none" and self.weight:
            yield "weight needs a network (teacher, lpips or vgg16): set one, or weight to 0.0"
        if self.network != "none" and not self.weight:
            yield f"network is {self.network}, but has no effect at weight 0.0: raise weight, or set network to none"


class Adversarial(Section):
    """A discriminator of patches, and its term of the tokenizer's loss."""

    weight: Weight = 0.0
    """Weight of the adversarial loss; 0.0: no discriminator."""
    loss: Literal["hinge", "hinge_sum", "bce"] = "hinge"
    """Loss of the discriminator; hinge_sum lacks the factor 1/2, as in MUSE."""
    start: Annotated[int, Field(ge=0)] = 4000
    """Images before the discriminator's training starts."""
    adaptive: Literal["none", "taming", "perceptual"] = "taming"
    """Adaptive weight: by the gradients of the other losses (taming), of the perceptual loss alone (perceptual, as in
    MUSE), or none."""
    channels: Annotated[list[Positive], Field(min_length=1)] = [32, 64, 64]
    """Width of each level of the discriminator; each but the first halves the resolution."""
    norm_groups: Positive = 16
    """Groups of the discriminator's group norms."""
    lr_scale: Annotated[float, Field(gt=0)] = 1.0
    """Learning rate of the discriminator, as a factor of the training's."""
    betas: Annotated[tuple[Fraction, Fraction], Field(strict=False)] = (0.5, 0.9)
    """Betas of the discriminator's AdamW."""
    clip_norm: Annotated[float, Field(gt=0)] | Literal["none"] | None = None
    """Largest gradient norm of the discriminator; none: not clipped; null: that of the training."""
    gradient_penalty: Weight = 0.0
    """Weight of (norm of the discriminator's gradient at real images - 1)²; 10 in MUSE."""
    gradient_penalty_every: Positive = 4
    """Interval of the penalty, in steps of the discriminator."""

    @property
    def active(self) -> bool:
        """Whether there is a discriminator."""
        return self.weight > 0

    @property
    def whole_batch(self) -> bool:
        """Whether the weight needs gradients of the whole batch, which `run.micro_batch` then does not split."""
        return self.active and self.adaptive != "none"

    @property
    def smallest(self) -> int:
        """The smallest side of images for the discriminator, in pixels: its last window is left."""
        return int(WINDOW * 2 ** (len(self.channels) - 1))

    def _misfits(self) -> Iterator[str]:
        yield from undivided(self.norm_groups, self.channels[1:])  # the first level has no norm


def unfit_losses(perceptual: Perceptual, adversarial: Adversarial) -> Iterator[str]:
    """Yield a misfit if the adaptive weight needs a perceptual loss and there is none."""
    if adversarial.active and adversarial.adaptive == "perceptual" and not perceptual.active:
        yield "adversarial.adaptive is perceptual, but there is no perceptual loss: use taming or none"


# How the gradient passes the quantiser: rotated and scaled like the vector, or unchanged.
Gradient = Literal["rotation", "straight_through"]


Iterations = Annotated[int, Field(ge=1)]
Smoothing = Annotated[float, Field(gt=0)]


class VQ(Section):
    """A codebook of means of the vectors of each code; the names are those of vector-quantize-pytorch."""

    cosine: bool = True
    """Compare directions, on the unit sphere, instead of distances."""
    decay: Annotated[float, Field(ge=0, lt=1)] = 0.9
    """Decay of the moving averages in each optimizer step."""
    eps: Smoothing = 1e-5
    """Laplace smoothing: added to the count of each code."""
    kmeans_init: bool = True
    """Initialise the codebook by k-means over the latents of the first batch."""
    kmeans_iters: Iterations = 10
    """Iterations of k-means."""
    dead_below: Weight = 1.0
    """A code used less often in a batch, on average, is replaced by a latent of the batch; 0.0: never."""
    learnable_codebook: bool = False
    """The optimizer trains the codebook, by the commitment loss, instead of moving averages."""
    gradient: Gradient | Literal["directional"] = "rotation"
    """How the gradient passes the quantiser; directional: DiVeQ, also to a learnable codebook."""
    directional_reparam_variance: Annotated[float, Field(gt=0)] = 5e-3
    """gradient directional: variance of the noise on the direction from a latent to its code."""
    commitment_weight: Weight = 1.0
    """Weight of the commitment loss."""
    commitment: Literal["mse", "cross_entropy"] = "mse"
    """mse: |latent - its code|², per element; cross_entropy: of its code, with minus the distances as logits."""
    orthogonal_reg_weight: Weight = 0.0
    """Weight of the squared cosines between the codes of a learnable codebook."""
    orthogonal_reg_active_codes_only: bool = False
    """Only between the codes of the batch."""
    orthogonal_reg_max_codes: Positive | None = None
    """Largest number of these codes, drawn in each optimizer step; null: all."""
    codebook_diversity_loss_weight: Weight = 0.0
    """Weight of minus the entropy of the batch's soft codes, for each position."""
    codebook_diversity_temperature: Annotated[float, Field(gt=0)] = 100.0
    """Inverse temperature of these soft codes."""
    affine_param: bool = False
    """The codebook has the mean and the deviation of the latents, by moving averages."""
    affine_param_batch_decay: Fraction = 0.99
    """Decay of mean and variance of the latents."""
    affine_param_codebook_decay: Fraction = 0.9
    """Decay of mean and variance of the codebook."""

    @property
    def whole_batch(self) -> bool:
        """Whether a loss, or a draw, needs the whole batch."""
        drawn = self.gradient == "directional" or self.orthogonal_reg_max_codes is not None
        return drawn or self.orthogonal_reg_active_codes_only or self.codebook_diversity_loss_weight > 0

    READ_WITH = {
        "orthogonal_reg_weight": ("learnable_codebook",),
        "orthogonal_reg_active_codes_only": ("orthogonal_reg_weight",),
        "orthogonal_reg_max_codes": ("orthogonal_reg_weight",),
    }

    def _misfits(self) -> Iterator[str]:
        """Yield the combinations that vector-quantize-pytorch refuses or overwrites."""
        for name in ("learnable_codebook", "affine_param"):
            if self.cosine and getattr(self, name):
                yield f"{name} cannot be combined with cosine: set cosine to false"
        if self.gradient == "directional":
            if not self.learnable_codebook:
                yield "gradient: directional trains the codebook: set learnable_codebook to true"
            if not self.dead_below:
                yield "gradient: directional needs codes to be replaced: set dead_below above 0"
            if self.commitment_weight:
                yield "gradient: directional has no commitment loss: set commitment_weight to 0.0"


class SimVQ(Section):
    """A codebook that is a trained linear map of fixed random vectors."""

    gradient: Gradient = "rotation"
    """How the gradient passes the quantiser."""
    codebook_weight: Weight = 1.0
    """Weight of |latent - its code|² as a loss of the codebook."""
    commitment_weight: Weight = 0.25
    """Weight of |latent - its code|² as a loss of the encoder."""


class Binary(Section):
    """A codebook of signs: lookup-free or binary spherical."""

    entropy_weight: Weight = 0.1
    """Weight of the entropy of a position's soft code, minus `diversity` times that of all codes."""
    diversity: Weight = 1.0
    """Weight of the entropy of all codes against that of each position."""
    inverse_temperature: Annotated[float, Field(gt=0)] = 100.0
    """Inverse temperature of the soft codes."""
    commitment_weight: Weight = 0.0
    """Weight of |latent - its code|², per element."""


class LFQ(Binary):
    """A codebook of the signs of unbounded latents."""

    commitment_weight: Weight = 0.25
    """Weight of |latent - its code|², per element; 0.0 in MUSE: latents may then grow without bound."""


class FSQ(Section):
    """A codebook of rounded numbers."""

    levels: Annotated[list[Annotated[int, Field(ge=3)]], Field(min_length=1)] = [4, 4, 4, 4]
    """Levels of each channel; their product is codebook_size."""
