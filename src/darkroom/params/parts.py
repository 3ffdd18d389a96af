"""The section `parts`: how the data arrive."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from darkroom.params.numbers import NO_FILE, PartName
from darkroom.params.section import Section

SourceName = Literal["digits", "shapes", "torchvision", "folder", "webdataset", "urls", "hub"]

# Left empty is none, as everywhere in params.yaml.
Settings = Annotated[dict[str, Any], BeforeValidator(lambda given: {} if given is None else given)]


class Part(Section):
    """A slice [start, stop) of a source, counted in images, of `webdataset` in shards; or one in `every` of it."""

    source: SourceName
    """Source of the images; the section of its name holds its settings: docs/data.md."""
    path: str = NO_FILE
    """The local file or folder that the source reads; data/none: none."""
    start: Annotated[int, Field(ge=0)] = 0
    """First image of the slice, counted from 0; of webdataset: first shard."""
    stop: Annotated[int, Field(gt=0)] | None = None
    """One past the last image of the slice; null: to the end."""
    every: Annotated[int, Field(gt=0)] = 1
    """One of how many images of the slice is read, evenly spread: a trial on few. Not of webdataset and urls."""
    embeddings: str = NO_FILE
    """A folder of CLIP embeddings by others: `embed_clip.imported`; data/none: none."""
    settings: Settings = Field(default_factory=dict)
    """Keys of the source's section that have another value for this part."""

    @model_validator(mode="after")
    def _not_empty(self) -> "Part":
        if self.stop is not None and self.stop <= self.start:
            raise ValueError(f"stop ({self.stop}) must be above start ({self.start})")
        return self

    @property
    def images(self) -> int | None:
        """Images that are read; None: known only behind that."""
        if self.stop is None or self.source == "webdataset":
            return None
        return -(-(self.stop - self.start) // self.every)

    @model_validator(mode="after")
    def _read(self) -> "Part":
        """What each source reads is named, and nothing is named that it does not read."""
        if self.source in ("digits", "shapes") and self.path != NO_FILE:
            raise ValueError(f"{self.source} reads no file: its path is {NO_FILE}, and not {self.path}")
        if self.source in ("folder", "urls") and self.path == NO_FILE:
            raise ValueError(
                f"{self.source} needs a path: the {'table' if self.source == 'urls' else 'folder'} it reads"
            )
        if self.source in ("webdataset", "urls") and self.every > 1:
            why = "reads whole shards" if self.source == "webdataset" else "downloads all from start to stop"
            raise ValueError(f"{self.source} {why}: every is 1, and start and stop choose")
        if self.source == "shapes" and self.stop is None:
            raise ValueError("shapes has no end: give the part a stop, the number of scenes")
        return self


def _sorted(parts: dict[str, Part]) -> dict[str, Part]:
    return dict(sorted(parts.items()))


# In the order of their names: DVC compares mappings without order, so no result may depend on it.
Parts = Annotated[dict[PartName, Part], Field(min_length=1), AfterValidator(_sorted)]
