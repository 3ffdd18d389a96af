"""Where FID's network comes from: read by `reference_stats`, and by whatever scores with it."""

from typing import Annotated

from pydantic import Field

from darkroom.params.section import Section


class Inception(Section):
    """Where the weights of FID's network come from: a file, or (`data/none`) torch-fidelity's release."""

    weights: str
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
