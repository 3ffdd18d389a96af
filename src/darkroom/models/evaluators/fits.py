"""Whether the published weights that params.yaml names are there. Loads no torch."""

import os
from pathlib import Path
from typing import Any

from darkroom.params.fits import refuse
from darkroom.params.reference_stats import CLIP_URL, DINOV2_L
from darkroom.params.section import NO_FILE


def cache() -> Path:
    """Return torch hub's folder of weights, as torch finds it."""
    home = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(os.environ.get("TORCH_HOME") or Path(home, "torch")).expanduser() / "hub" / "checkpoints"


def fits(params: Any) -> None:
    """Check that each file of weights is there; what is downloaded when it is needed need not be.

    Args:
        params: the whole of params.yaml, validated.

    Raises:
        DarkroomError: a file is missing; names its key, the file, where it is published and its hash.
    """
    section = params.reference_stats
    for name, url, fetched in (("dinov2", DINOV2_L, True), ("clip", CLIP_URL, False)):
        if name not in section.extractors:
            continue
        given = getattr(section, name)
        named = given.weights != NO_FILE
        path = Path(given.weights) if named else cache() / url.rpartition("/")[2]
        if not path.is_file() and (named or not fetched):
            refuse(
                f"`reference_stats.{name}.weights` is {given.weights}, and {path} does not exist: fetch {url} (sha256 "
                f"{given.sha256}) to there, or take {name} out of `reference_stats.extractors`."
            )
