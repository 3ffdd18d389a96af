"""The shared part of the sections of all kinds of generators, and the sections of `none`."""

from collections.abc import Iterator

from darkroom.params import kinds
from darkroom.params.section import Section

# For each condition of CLIP, the kinds of stored embeddings that are read; the first is pooled.
READ = {"image": ("image",), "text": ("text",), "tokens": ("text", "encoding")}
TEXTS = ("text", "tokens", "caption")  # the conditions that are texts
OF_ROWS = tuple({**READ, **dict.fromkeys(TEXTS)})  # the conditions that are read from rows of a split


class Kind(kinds.Kind):
    """A kind of generator."""

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


class NoGenerator(Kind):
    """No generator: nothing is trained, sampled or scored."""

    def _misfits(self) -> Iterator[str]:
        if self.training:
            yield "nothing is trained, so `training` must be {}"


class NoSampling(Section):
    """No generator: it has no keys."""
