"""The sections that the generators of codes share: the transformer, and how codes are sampled."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from darkroom.models.generators.kind_settings import ConditionedKind, Transformer
from darkroom.params.section import Fraction, Positive, Section, Weight


class Model(Transformer):
    """The size of the transformer, and its parts."""

    SIZES: ClassVar = {None: (4, 128, 4), "llamagen_b": (12, 768, 12), "rar_b": (24, 768, 16), "halton_s": (12, 512, 8)}

    size: Literal["llamagen_b", "rar_b", "halton_s"] | None = None
    """Depth, width and heads of LlamaGen-B, RAR-B or Halton-MaskGIT-S; null: 4, 128 and 4."""
    dropout: Fraction = 0.1
    token_dropout: Fraction = 0.0
    """Fraction of the embedded codes' elements that is zero while training, for small data."""
    attention_dropout: Fraction = 0.0
    """Fraction of the attention's weights that is zero while training, for small data; RAR: 0.1."""
    tie: bool = False
    """The embeddings of the codes are also the weights of their logits, for small data."""


class CodeLoss(Section):
    """The conditions that a transformer over codes is trained on."""

    label_dropout: Fraction = 0.1
    """Fraction of conditions replaced by the learned null, for guidance."""
    word_dropout: Fraction = 0.05  # enough to learn the unknown token, which no training caption has
    """condition caption: fraction of a caption's tokens read as the unknown token while training."""


class OfCodes(ConditionedKind):
    """A generator of codes."""

    codes = True
    dropout_key = "loss.label_dropout"

    model: Model = Model.model_construct()
    """Size of the transformer."""


class CodeSampling(Section):
    """How codes are drawn from the predicted probabilities."""

    temperature: Annotated[float, Field(gt=0)] = 1.0
    """Divisor of the logits; below 1 likely codes become more frequent."""
    top_k: Positive | None = None
    """Sample among the k most likely codes; null: among all."""
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Sample among the most likely codes whose probabilities have at least this sum."""
    min_p: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Codes less likely than this fraction of the likeliest one are not sampled."""
    guidance: Weight = 1.5
    """Scale of classifier-free guidance; 1: none."""
    guidance_schedule: Literal["constant", "linear", "cosine"] = "constant"
    """Scale from the first code to the last: constant, or growing from 1, linear or as a power of a cosine (RAR)."""
    guidance_power: Annotated[float, Field(gt=0)] = 1.0
    """guidance_schedule cosine: the power; the larger, the later guidance begins (RAR-B: 2.75)."""

    READ_WITH: ClassVar = {"guidance_power": ("guidance_schedule", "cosine")}
