"""The sections of the quantisers, which kinds with a codebook share."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from darkroom.params.section import Fraction, Positive, Section, Weight

# How the gradient passes the quantiser: turned and stretched as the vector was, or as it is.
Gradient = Literal["rotation", "straight_through"]


Iterations = Annotated[int, Field(ge=1)]
Smoothing = Annotated[float, Field(gt=0)]


class VQ(Section):
    """A codebook of means of the vectors that took each code; the names are those of vector-quantize-pytorch."""

    cosine: bool = True
    """Compare directions, on the unit sphere, and not distances."""
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
    """The optimizer trains the codebook, by the commitment loss, in place of moving averages."""
    gradient: Gradient | Literal["directional"] = "rotation"
    """How the gradient passes the quantiser; directional: DiVeQ, to a learnable codebook, too."""
    directional_reparam_variance: Annotated[float, Field(gt=0)] = 5e-3
    """gradient directional: variance of the noise on the direction from a latent to its code."""
    commitment_weight: Weight = 1.0
    """Weight of the commitment loss."""
    commitment: Literal["mse", "cross_entropy"] = "mse"
    """mse: |latent - its code|², per element; cross_entropy: of its code, by logits that are minus the distances."""
    orthogonal_reg_weight: Weight = 0.0
    """Weight of the squared cosines between the codes of a learnable codebook."""
    orthogonal_reg_active_codes_only: bool = False
    """Of the codes of the batch alone."""
    orthogonal_reg_max_codes: Positive | None = None
    """Of so many codes at most, drawn in each optimizer step; null: all."""
    codebook_diversity_loss_weight: Weight = 0.0
    """Weight of minus the entropy of the batch's soft codes, of each position."""
    codebook_diversity_temperature: Annotated[float, Field(gt=0)] = 100.0
    """Inverse temperature of these soft codes."""
    affine_param: bool = False
    """The codebook has the mean and the deviation of the latents, both followed by moving averages."""
    affine_param_batch_decay: Fraction = 0.99
    """Decay of mean and variance of the latents."""
    affine_param_codebook_decay: Fraction = 0.9
    """Decay of mean and variance of the codebook."""

    @property
    def whole_batch(self) -> bool:
        """Whether a loss, or a draw, is of the batch as a whole."""
        drawn = self.gradient == "directional" or self.orthogonal_reg_max_codes is not None
        return drawn or self.orthogonal_reg_active_codes_only or self.codebook_diversity_loss_weight > 0

    @model_validator(mode="after")
    def _together(self) -> "VQ":
        """What vector-quantize-pytorch refuses or overwrites."""
        if self.cosine and self.learnable_codebook:
            raise ValueError("learnable_codebook and cosine exclude each other: set cosine to false")
        if self.cosine and self.affine_param:
            raise ValueError("affine_param and cosine exclude each other: set cosine to false")
        if self.gradient == "directional":
            if not self.learnable_codebook:
                raise ValueError("gradient: directional trains the codebook: set learnable_codebook to true")
            if not self.dead_below:
                raise ValueError("gradient: directional needs codes to be replaced: set dead_below above 0")
            if self.commitment_weight:
                raise ValueError("gradient: directional has no commitment loss: set commitment_weight to 0.0")
        if self.orthogonal_reg_weight and not self.learnable_codebook:
            raise ValueError(
                "orthogonal_reg_weight trains the codebook, and moving averages would overwrite it: set "
                "learnable_codebook to true"
            )
        for name in ("orthogonal_reg_active_codes_only", "orthogonal_reg_max_codes"):
            if getattr(self, name) and not self.orthogonal_reg_weight:
                raise ValueError(f"{name} is read with orthogonal_reg_weight only: raise it, or leave {name} out")
        return self


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
    """Weight of the entropy of a position's soft code, less `diversity` times that of all codes."""
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
