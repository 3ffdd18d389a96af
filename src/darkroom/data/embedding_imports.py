"""Import embeddings of other programs, in the format of DALLE2-pytorch, and join them to the images of a part.

It reads `PREFIX_0000.npy` for the tar 0000: the row of an image is the last digits of its key, and a row of zeros
stands for an image without an embedding. embedding-dataset-reordering writes such files from those of clip-retrieval.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from darkroom.data.embeddings import map_embeddings
from darkroom.data.reader import ImageShards, Shard
from darkroom.errors import DarkroomError

_NUMBER = re.compile(r"(\d+)\.npy$")
_DIGITS = re.compile(r"(\d+)(?:\.[a-z.]+)?$")


@dataclass(frozen=True)
class ImportedRows:
    """Rows for the images of a shard: values (n, ...) as stored, and which of them are present, bool (n,)."""

    values: NDArray[Any]
    present: NDArray[np.bool_]


def _numbered(folder: Path) -> dict[int, Path]:
    """Return the files of a folder by the number at the end of their names.

    Raises:
        DarkroomError: there are no files, or two files have the same number.
    """
    files: dict[int, Path] = {}
    for path in sorted(folder.glob("*.npy")):
        if (match := _NUMBER.search(path.name)) is not None:
            if (number := int(match[1])) in files:
                raise DarkroomError(f"{path} and {files[number].name} have the same number: remove one of them.")
            files[number] = path
    if not files:
        raise DarkroomError(
            f"{folder} has no embeddings, files such as img_emb_0.npy: check `parts.PART.embeddings` and "
            "`embed_clip.imported` in params.yaml."
        )
    return files


def _rows(files: dict[int, Path], places: Sequence[tuple[int, int] | None]) -> ImportedRows:
    """Return the rows at locations (file, row) of files; None: there is no row. A row of zeros counts as absent."""
    arrays = {number: map_embeddings(files[number]).array for number in {place[0] for place in places if place}}
    some = next(iter(arrays.values())) if arrays else map_embeddings(next(iter(files.values()))).array
    values = np.zeros((len(places), *some.shape[1:]), dtype=np.float32)
    for at, place in enumerate(places):
        if place is not None and place[1] < len(arrays[place[0]]):
            row = arrays[place[0]][place[1]]
            if row.shape != values.shape[1:]:
                raise DarkroomError(
                    f"{files[place[0]]} has rows of shape {row.shape}, but other files {values.shape[1:]}."
                )
            values[at] = row
    return ImportedRows(values, np.asarray(values.reshape(len(values), -1).any(axis=1)))


class Dalle2:
    """Folders of embeddings as DALLE2-pytorch reads them.

    Raises:
        DarkroomError: a folder has no such files.
    """

    def __init__(self, folder: Path, subfolders: dict[str, str], index_width: int) -> None:
        self._files = {name: _numbered(folder / subfolder) for name, subfolder in subfolders.items()}
        self._width = index_width

    def shard(self, reader: ImageShards, shard: Shard) -> dict[str, ImportedRows]:
        """Return the rows of a shard's images.

        Raises:
            DarkroomError: a key does not end in `index_width` digits, or its tar has no number; names the key.
        """
        places = []
        for row in reader.texts(shard):
            key = row["key"]
            tail, number = key[-self._width :], self._number(shard, key)
            if not (tail.isdecimal() and len(tail) == self._width) or number is None:
                raise DarkroomError(
                    f"the key {key} has no tar and row number: keys must end in {self._width} digits of the row "
                    "(`embed_clip.imported.index_width`), after those of the tar if the images were stored again."
                )
            places.append((number, int(tail)))
        return {
            name: _rows(files, [place if place[0] in files else None for place in places])
            for name, files in self._files.items()
        }

    def _number(self, shard: Shard, key: str) -> int | None:
        """Return the number of the tar: from its name where it is the original tar, else from the start of the key."""
        text = shard.tar.partition("?")[0] if shard.preparation is not None else key[: -self._width]
        match = _DIGITS.search(text)
        return int(match[1]) if match else None
