"""The numbers and names that several sections share."""

from typing import Annotated

from pydantic import Field

Positive = Annotated[int, Field(gt=0)]
Seed = Annotated[int, Field(ge=0)]
Weight = Annotated[float, Field(ge=0)]
Rate = Annotated[float, Field(gt=0)]
Fraction = Annotated[float, Field(ge=0, lt=1)]
Betas = Annotated[tuple[Fraction, Fraction], Field(strict=False)]
Warmup = Annotated[int, Field(ge=0)]
PartName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]*$")]
PartNames = Annotated[list[PartName], Field(min_length=1)]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]

NO_FILE = "data/none"  # the committed empty file that stands for an optional input that is not there
