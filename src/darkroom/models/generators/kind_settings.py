"""What the sections of all kinds of generators share."""

from pydantic import Field, field_validator

from darkroom.params.overrides import OWN_TRAINING, Overrides, require_known
from darkroom.params.section import Section


class Kind(Section):
    """A kind of generator.

    training: keys of `train_generator.training` that have another value for this kind, but `threads`, `processes` and
        `init`, which are read before the kind is known.
    """

    training: Overrides = Field(default_factory=dict)
    """The keys of `train_generator.training` that have another value for this kind."""

    @field_validator("training")
    @classmethod
    def _known(cls, values: Overrides) -> Overrides:
        return require_known(values, OWN_TRAINING, "a kind")

    def unfit(self, latent_size: int) -> str | None:
        """Return why the section does not fit latents of a height and width; None: it does."""
        return None

    @property
    def label_dropout(self) -> float:
        """The fraction of labels dropped while training; 0: nothing can guide it."""
        return 0.0
