"""The sections of the generator `dit`: under `train_generator` and under `sample_generator`."""

from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from darkroom.diffusion.settings import (
    READ_WITH_OBJECTIVE,
    Diffusion,
    MeanFlowLoss,
    ObjectiveName,
    Sampling,
    Solver,
    Steps,
    Target,
    Timesteps,
    unfit,
)
from darkroom.models.generators.kind_settings import ConditionedKind, Transformer
from darkroom.params.section import NO_FILE, Fraction, Positive, Weight

LATENT_SCALE = 0.18215  # of Stable Diffusion's first autoencoder (Rombach et al., 2022), used by DiT

# Depth, width and heads of the sizes of the paper (Peebles and Xie, 2023, table 1).
SIZES: dict[Any, tuple[int, int, int]]
SIZES = {"S": (12, 384, 6), "B": (12, 768, 12), "L": (24, 1024, 16), "XL": (28, 1152, 16)}


class Model(Transformer):
    """The size of the transformer, and its parts."""

    SIZES: ClassVar = {None: (6, 192, 6), **SIZES}  # without a name: for some thousand images of 32 pixels

    size: Literal["S", "B", "L", "XL"] | None = None
    """Depth, width and heads by the names of the paper; null: 6, 192 and 6."""
    patch: Positive = 2
    """Latent pixels, height and width, of a token."""
    patch_bottleneck: Positive | None = None
    """Width between two linear maps from a patch to a token, for large patches; null: one map."""
    norm: Literal["layer", "rms"] = "layer"
    """layer (LayerNorm) or rms (RMSNorm)."""
    mlp: Literal["gelu", "swiglu"] = "gelu"
    """Network of a block: gelu, or swiglu with the same number of parameters."""
    rope: bool = False
    """Rotary positions of columns and rows in attention, besides the fixed ones."""
    qk_norm: bool = False
    """RMSNorm of queries and keys."""

    def _misfits(self) -> Iterator[str]:
        width, heads = self.shape["width"], self.shape["heads"]
        if width % 4:
            yield f"width ({width}) must be a multiple of 4, for the sin-cos positions"
        if self.rope and width // heads % 4:
            yield f"rope turns quarters of a head: width ({width}) / heads ({heads}) must be a multiple of 4"


class DiTDiffusion(Diffusion):
    """The diffusion of latents."""

    objective: ObjectiveName = "flow"
    mean_flow: MeanFlowLoss = MeanFlowLoss.model_construct()
    """mean_flow: pairs of times, guidance and weight of the loss."""
    target: Target = "eps"
    timesteps: Timesteps = 1000
    """gaussian: length of the noise schedule."""
    normalise: Literal["principal", "channel", "fixed"] = "principal"
    """Variance 1 in each channel (channel), at most 1 in any direction (principal), or a fixed factor (fixed)."""
    latent_scale: Annotated[float, Field(gt=0)] = LATENT_SCALE
    """normalise fixed: the factor of latents; 0.18215 for Stable Diffusion's autoencoder, as in published DiTs."""
    label_dropout: Fraction = 0.1
    """Fraction of labels, or of other conditions, replaced by the learned null, for guidance."""
    word_dropout: Fraction = 0.05  # enough to learn the unknown token, which no training caption has
    """condition caption: fraction of a caption's tokens read as the unknown token while training."""

    READ_WITH = {"latent_scale": ("normalise", "fixed"), **READ_WITH_OBJECTIVE}

    def scale(
        self, mean: Sequence[float], std: Sequence[float], widest: Callable[[], float] = lambda: 1.0
    ) -> tuple[list[float], list[float]]:
        """Return mean and deviation by which latents are normalised, from those of the latents, (C,) each.

        `widest` returns the factor of `principal`, the largest deviation of the correlated channels.
        """
        if self.normalise == "fixed":
            return [0.0] * len(mean), [1 / self.latent_scale] * len(std)
        factor = widest() if self.normalise == "principal" else 1.0
        return list(mean), [each * factor for each in std]


class DiTSampling(Sampling):
    """How images are sampled."""

    solver: Solver = "euler"
    steps: Steps = 25
    guidance: Weight = 1.5


class DiTGenerated(DiTSampling):
    """How images are sampled, and additional guides: a guide network (autoguidance), a classifier."""

    guide: str = NO_FILE
    """Autoguidance: a folder like models/generator of another run, with the same latents; data/none: none."""

    classifier: str = NO_FILE
    """models/classifier: train_classifier's network of noisy latents, or that of another run; data/none: none."""
    classifier_scale: Annotated[float, Field(ge=0)] = 0.0
    """Factor of its gradient, in the interval of guidance; with guidance: 1.0 it guides alone; 0.0: none."""

    READ_WITH = {"classifier_scale": ("classifier",)}


class DiT(ConditionedKind):
    """The diffusion transformer.

    sampling: for grids and evaluations while training.
    """

    formats = ("diffusers", "pt", "safetensors")

    model: Model = Model.model_construct()
    """Size of the transformer."""
    diffusion: DiTDiffusion = DiTDiffusion.model_construct()
    """Objective, scale of the latents, and label dropout."""
    sampling: DiTSampling = DiTSampling.model_construct()
    """Sampling of evaluations, and of the grids while training."""

    READ_WITH = {"diffusion.word_dropout": ("model.condition", "caption")}

    def _misfits(self) -> Iterator[str]:
        timesteps = "diffusion.timesteps", self.diffusion.timesteps
        yield from unfit("sampling", self.sampling, "diffusion", self.diffusion, timesteps)
