"""The section `parts`: how the data arrive."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from darkroom.params import Section

PartName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]*$")]


class Part(Section):
    """A slice [start, stop) of a source, counted in images."""

    source: Literal["digits"]
    start: Annotated[int, Field(ge=0)] = 0
    stop: Annotated[int, Field(gt=0)] | None = None

    @model_validator(mode="after")
    def _not_empty(self) -> "Part":
        if self.stop is not None and self.stop <= self.start:
            raise ValueError(f"stop ({self.stop}) must be above start ({self.start})")
        return self


def _sorted(parts: dict[str, Part]) -> dict[str, Part]:
    return dict(sorted(parts.items()))


# In the order of their names: DVC compares mappings without order, so no result may depend on it.
Parts = Annotated[dict[PartName, Part], Field(min_length=1), AfterValidator(_sorted)]
