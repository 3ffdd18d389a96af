"""The shared part of the sections of all kinds of generators, and the sections of `none`."""

from collections.abc import Iterator, Mapping
from operator import attrgetter
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from darkroom.params import kinds
from darkroom.params.section import Fraction, Positive, Section

# For each condition of CLIP, the kinds of stored embeddings that are read; the first is pooled.
READ = {"image": ("image",), "text": ("text",), "tokens": ("text", "encoding")}
TEXTS = ("text", "tokens", "caption")  # the conditions that are texts
OF_ROWS = tuple({**READ, **dict.fromkeys(TEXTS)})  # the conditions that are read from rows of a split


class Transformer(Section):
    """The size of a transformer, and its condition.

    SIZES: depth, width and heads by the value of `size`.
    """

    SIZES: ClassVar[Mapping[Any, tuple[int, int, int]]]

    size: str | None = None
    width: Positive | None = None
    """Length of a token; null: that of the size."""
    depth: Positive | None = None
    """Transformer blocks; null: those of the size."""
    heads: Positive | None = None
    """Attention heads; width / heads is their size; null: those of the size."""
    mlp_ratio: Annotated[float, Field(gt=0)] = 4.0
    """Width of the hidden layer of a block, in widths."""
    dropout: Fraction = 0.0
    """Fraction of a block's outputs that is zero while training."""
    condition: Literal["class", "none", "image", "text", "tokens", "caption"] = "class"
    """class; none; CLIP's embedding: image, text, or tokens (text too); caption: embedded by the transformer."""
    context_length: Annotated[int, Field(ge=3, le=77)] | None = None
    """condition caption: tokens of a caption with start and end, longer ones are cut; null: enough for 99 %."""

    @property
    def shape(self) -> dict[str, int]:
        """Depth, width and heads."""
        named = zip(("depth", "width", "heads"), self.SIZES[self.size], strict=True)
        return {name: getattr(self, name) or of_size for name, of_size in named}

    READ_WITH: ClassVar = {"context_length": ("condition", "caption")}

    def _misfits(self) -> Iterator[str]:
        width, heads = self.shape["width"], self.shape["heads"]
        if self.size is not None and None not in (self.width, self.depth, self.heads):
            yield f"size is {self.size}, but has no effect with width, depth and heads: remove it, or leave these empty"
        if width % heads:
            yield f"heads ({heads}) must divide width ({width})"


class Kind(kinds.Kind):
    """A kind of generator.

    codes: whether it needs discrete latents.
    causal: whether it predicts codes one after another, which gives an exact likelihood.
    fills: whether it fills a part of an image.
    formats: those that `darkroom export` can write it in.
    dropout_key: the key of `label_dropout`.
    """

    codes: ClassVar[bool] = False
    causal: ClassVar[bool] = False
    fills: ClassVar[bool] = False
    formats: ClassVar[tuple[str, ...]] = ("safetensors",)
    dropout_key: ClassVar[str] = "diffusion.label_dropout"

    @property
    def condition(self) -> str:
        """The condition of images: class, none, caption, or one of `READ`."""
        return "class"

    @property
    def context_length(self) -> int | None:
        """Tokens of a caption; None: enough for nearly all."""
        return None

    @property
    def label_dropout(self) -> float:
        """The fraction of conditions dropped while training; 0: no guidance."""
        return 0.0


class ConditionedKind(Kind):
    """A kind of generator whose transformer `model` has the condition."""

    model: Transformer

    @property
    def condition(self) -> str:
        """The condition of the images."""
        return self.model.condition

    @property
    def context_length(self) -> int | None:
        """Tokens of a caption; None: enough for nearly all."""
        return self.model.context_length

    @property
    def label_dropout(self) -> float:
        """The fraction of conditions dropped while training, which guidance needs."""
        return 0.0 if self.condition == "none" else attrgetter(self.dropout_key)(self)


class NoGenerator(Kind):
    """No generator: nothing is trained, sampled or scored."""

    def _misfits(self) -> Iterator[str]:
        if self.training:
            yield "nothing is trained, so `training` must be {}"


class NoSampling(Section):
    """No generator: it has no keys."""
