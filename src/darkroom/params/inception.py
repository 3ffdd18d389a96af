"""Where FID's network comes from: read by `reference_stats`, and by whatever scores with it."""

from typing import Annotated

from pydantic import Field

from darkroom.params.numbers import NO_FILE
from darkroom.params.section import Section


class Inception(Section):
    """Where the weights of FID's network come from: a file, or (`data/none`) torch-fidelity's release."""

    weights: str = NO_FILE
    """A file with torch-fidelity's weights; data/none: download them."""
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] = (
        "6726825d0af5f729cebd5821db510b11b1cfad8faad88a03f1befd49fb9129b2"
    )
    """SHA-256 of that file; another file is refused."""
