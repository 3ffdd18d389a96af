"""What the sections of all kinds of generators share."""

from darkroom.params import kinds


class Kind(kinds.Kind):
    """A kind of generator."""

    def unfit(self, latent_size: int) -> str | None:
        """Return why the section does not fit latents of a height and width; None: it does."""
        return None

    @property
    def label_dropout(self) -> float:
        """The fraction of labels dropped while training; 0: nothing can guide it."""
        return 0.0
