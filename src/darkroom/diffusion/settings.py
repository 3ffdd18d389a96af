"""Types of keys that the sections of the decoder and of the prior share."""

from typing import Annotated, Literal

from pydantic import Field

ScheduleName = Literal["cosine", "linear", "quadratic", "jsd", "sigmoid"]
Probability = Annotated[float, Field(ge=0, le=1)]
