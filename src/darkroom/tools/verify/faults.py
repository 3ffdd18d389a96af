"""What `darkroom data verify` finds wrong: which file, which image, what, and what to do."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from darkroom.artifacts.manifest import NAME, ArtifactError

SNAKEMAKES = ".snakemake_timestamp"  # in each folder that a rule declares as output
_LISTED = 20  # faults of one kind in one file that are listed; the others are counted


@dataclass(frozen=True)
class Fault:
    """One fault.

    path: the file, or what else it is found in.
    what: what is wrong, the same words for all faults of a kind.
    remedy: what to do.
    key: of the image, where it is about one.
    detail: what differs between faults of a kind.
    """

    path: Path | str
    what: str
    remedy: str
    key: str = ""
    detail: str = ""

    def __str__(self) -> str:
        image = f" image {self.key}" if self.key else ""
        detail = f" ({self.detail})" if self.detail else ""
        return f"{self.path}:{image} {self.what}{detail}: {self.remedy}."


def lines(faults: Iterable[Fault]) -> Iterator[str]:
    """Yield a line for each fault; of a kind that a file is full of, the first ones and how many more there are."""
    counts: Counter[tuple[str, str]] = Counter()
    for fault in faults:
        counts[str(fault.path), fault.what] += 1
        if counts[str(fault.path), fault.what] <= _LISTED:
            yield str(fault)
    for (path, what), count in counts.items():
        if count > _LISTED:
            yield f"{path}: {count - _LISTED:,} more images of which each {what}."


def unreliable(folder: Path, error: ArtifactError, remedy: str) -> Fault:
    """Return the fault of a manifest that is missing, damaged or of another shape."""
    text = str(error).removeprefix(f"{folder / NAME} ").rstrip(".")
    return Fault(folder / NAME, "cannot be relied on", remedy, detail=text)


def remake(path: Path, stage: str) -> str:
    """Return what to do about a damaged file of an output of a stage.

    Args:
        path: of the output, a folder.
        stage: that makes it, as the engines name it.
    """
    return f"delete it and restore it with `dvc checkout {path}`, or make it again with `dvc repro {stage}`"
