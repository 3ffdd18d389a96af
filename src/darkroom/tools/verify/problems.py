"""The errors that `darkroom verify` reports, and the parts of params.yaml that it and `darkroom data` take."""

import difflib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from darkroom.data.embeddings import EMBEDDING_PARTS
from darkroom.data.latents import LATENT_PARTS
from darkroom.data.layout import SHARDS
from darkroom.errors import DarkroomError
from darkroom.params.parts import Parts
from darkroom.params.section import PARAMS, Section, validate
from darkroom.params.stage import lookup, read_yaml

_LISTED = 20  # errors of one kind in one file that are listed; the others are counted


@dataclass(frozen=True)
class Problem:
    """One error in the data.

    path: the file, or the name of another object with the error.
    what: what is wrong, in the same words for all errors of a kind.
    remedy: what to do.
    key: the key of the image, for an error of one image.
    detail: what differs between errors of a kind.
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


def lines(faults: Iterable[Problem]) -> Iterator[str]:
    """Yield a line for each error; of many errors of one kind in one file, the first ones and a count of the others."""
    counts: Counter[tuple[str, str]] = Counter()
    for fault in faults:
        counts[str(fault.path), fault.what] += 1
        if counts[str(fault.path), fault.what] <= _LISTED:
            yield str(fault)
    for (path, what), count in counts.items():
        if count > _LISTED:
            yield f"{path}: {count - _LISTED:,} more images of which each {what}."


class _Params(Section):
    parts: Parts


def read_parts(names: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the parts of params.yaml, and those among `names`; all where none is named.

    Raises:
        DarkroomError: params.yaml is missing or not valid, or has no such part; the message suggests the nearest name.
    """
    parts = list(validate(_Params, {"parts": lookup(read_yaml(PARAMS), "parts")}).parts)
    for name in names:
        if name not in parts:
            near = difflib.get_close_matches(name, parts, n=1)
            hint = f"did you mean `{near[0]}`?" if near else f"it has {', '.join(parts)}."
            raise DarkroomError(f"{PARAMS} has no part `{name}`; {hint}")
    return parts, [part for part in parts if not names or part in names]


def left_over(parts: Collection[str]) -> list[str]:
    """Return the folders of parts that were removed from params.yaml."""
    roots = (SHARDS, LATENT_PARTS, EMBEDDING_PARTS)
    folders: list[Path] = [folder for root in roots for folder in sorted(root.glob("[!.]*/")) if folder.is_dir()]
    return [str(folder) for folder in folders if folder.name not in parts]
