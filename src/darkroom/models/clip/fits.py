"""Whether CLIP fits the data."""

from typing import Any

from darkroom.models.clip.settings import unfit
from darkroom.params.fits import refuse


def fits(params: Any) -> None:
    """Check the section of CLIP.

    Args:
        params: the whole of params.yaml, validated.

    Raises:
        DarkroomError: it does not fit; names its key.
    """
    if reason := unfit(params.train_clip, params.ingest.image_size):
        refuse(f"{reason}.")
