"""Embeddings made by other programs, joined to the images of a part.

clip-retrieval writes `img_emb/img_emb_0.npy`, `text_emb/text_emb_0.npy` and, with the same rows,
`metadata/metadata_0.parquet`, whose column `image_path` holds the key of the image; rows come in any order.
DALLE2-pytorch reads `PREFIX_0000.npy` for the tar 0000: the row of an image is the last digits of its key, and a row
of zeros stands for an image without an embedding.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from darkroom.data.embeddings import map_embeddings
from darkroom.data.keys import key_of
from darkroom.data.reader import ImageShards, Shard
from darkroom.errors import DarkroomError

_NUMBER = re.compile(r"(\d+)\.(?:npy|parquet)$")
_DIGITS = re.compile(r"(\d+)(?:\.[a-z.]+)?$")


@dataclass(frozen=True)
class Found:
    """Rows for the images of a shard: values (n, ...) as stored, and which of them are present, bool (n,)."""

    values: NDArray[Any]
    present: NDArray[np.bool_]


def _numbered(folder: Path, ending: str) -> dict[int, Path]:
    """Return the files of a folder by the number at the end of their names.

    Raises:
        DarkroomError: there are no files, or two files have the same number.
    """
    found: dict[int, Path] = {}
    for path in sorted(folder.glob(f"*.{ending}")):
        if (match := _NUMBER.search(path.name)) is not None:
            if (number := int(match[1])) in found:
                raise DarkroomError(f"{path} and {found[number].name} have the same number: remove one of them.")
            found[number] = path
    if not found:
        raise DarkroomError(
            f"{folder} holds no embeddings, files such as img_emb_0.{ending}: look at `parts.PART.embeddings` and "
            "`embed_clip.imported` in params.yaml."
        )
    return found


def _rows(files: dict[int, Path], places: Sequence[tuple[int, int] | None]) -> Found:
    """Return the rows at locations (file, row) of files; None: there is no row. A row of zeros counts as absent."""
    arrays = {number: map_embeddings(files[number]).array for number in {place[0] for place in places if place}}
    some = next(iter(arrays.values())) if arrays else map_embeddings(next(iter(files.values()))).array
    values = np.zeros((len(places), *some.shape[1:]), dtype=np.float32)
    for at, place in enumerate(places):
        if place is not None and place[1] < len(arrays[place[0]]):
            row = arrays[place[0]][place[1]]
            if row.shape != values.shape[1:]:
                raise DarkroomError(
                    f"{files[place[0]]} has rows of shape {row.shape}, and other files {values.shape[1:]}."
                )
            values[at] = row
    return Found(values, np.asarray(values.reshape(len(values), -1).any(axis=1)))


class _Imported:
    """Files of embeddings by number; `names` is what is taken over: image, text, encoding."""

    def __init__(self, folder: Path, subfolders: dict[str, str]) -> None:
        self._files = {name: _numbered(folder / sub, "npy") for name, sub in subfolders.items()}
        self.names = list(self._files)


class ClipRetrieval(_Imported):
    """A folder that clip-retrieval's `clip inference` has written.

    Args:
        folder: the folder of the part.
        subfolders: the subfolders of `image` and, where they are imported, of `text` and `encoding`.
        metadata: the subfolder of the metadata.
        column: the column of the metadata with the keys, or with the paths that keys follow from.

    Raises:
        DarkroomError: files are missing, or their numbers of rows differ from those of the metadata.
    """

    def __init__(self, folder: Path, subfolders: dict[str, str], metadata: str, column: str) -> None:
        super().__init__(folder, subfolders)
        tables = _numbered(folder / metadata, "parquet")
        keys, self._places = [], []
        for number, path in sorted(tables.items()):
            with pq.ParquetFile(path) as file:
                if column not in file.schema_arrow.names:
                    raise DarkroomError(f"{path} has no column {column}: it has {', '.join(file.schema_arrow.names)}.")
                own = file.read(columns=[column])[column]
            if own.null_count:
                raise DarkroomError(
                    f"{path} has no {column} in {own.null_count:,} rows, so they belong to no image: remove those rows."
                )
            for files in self._files.values():
                if number not in files:
                    raise DarkroomError(f"{path} has no embeddings of its number beside it: fetch them too.")
                if (rows := map_embeddings(files[number]).shape[0]) != len(own):
                    raise DarkroomError(
                        f"{files[number]} has {rows:,} rows, and {path} {len(own):,}: fetch both again."
                    )
            keys.append(own.combine_chunks().cast(pa.string()))
            self._places.append((number, len(own)))
        self._metadata, self._keys = folder / metadata, pa.concat_arrays(keys)
        self._settled = pc.all(pc.match_substring_regex(self._keys, r"^[A-Za-z0-9_-]{1,80}$")).as_py()
        if self._settled:
            self._require_one_of_each(self._keys)
        self._starts = np.concatenate([[0], np.cumsum([count for _, count in self._places])])

    def shard(self, reader: ImageShards, shard: Shard) -> dict[str, Found]:
        """Return the rows of a shard's images."""
        keys = pa.array([row["key"] for row in reader.texts(shard)], pa.string())
        at = pc.index_in(keys, value_set=self._found_by(keys)).fill_null(-1).to_numpy(zero_copy_only=False)
        files = np.searchsorted(self._starts, at, side="right") - 1
        places = [
            (self._places[file][0], int(row - self._starts[file])) if row >= 0 else None
            for row, file in zip(at.tolist(), files.tolist(), strict=True)
        ]
        return {name: _rows(files_, places) for name, files_ in self._files.items()}

    def _found_by(self, keys: pa.Array) -> pa.Array:
        """Return the key of each row: the stored one, or the key that a source gives to the file of the stored path.

        Such a key follows from the name of the file, or from its path below the folder of the part, which may have
        been at another place: leading folders that all paths have in common are removed, as many as give the most
        matches with `keys`.

        Raises:
            DarkroomError: a key occurs twice.
        """
        if self._settled:
            return self._keys
        paths = [(*path.parent.parts, path.stem) for path in map(PurePosixPath, self._keys.to_pylist())]
        least, most = (choose(path[:-1] for path in paths) for choose in (min, max))
        shared = next((at for at, (a, b) in enumerate(zip(least, most, strict=False)) if a != b), len(least))
        best, hits = self._keys, 0
        for cut in (-1, *range(shared, -1, -1)):
            tried = pa.array([key_of("/".join(path[cut:])) for path in paths], pa.string())
            if (count := pc.sum(pc.is_in(keys, value_set=tried)).as_py() or 0) > hits:
                best, hits = tried, count
        if hits:  # else none of these images has an embedding, and the next shard decides
            self._require_one_of_each(best)
            self._keys, self._settled = best, True
        return best

    def _require_one_of_each(self, keys: pa.Array) -> None:
        if len(pc.unique(keys)) != len(keys):
            twice = next(each for each in pc.value_counts(keys).to_pylist() if each["counts"] > 1)
            raise DarkroomError(f"{self._metadata} has the key {twice['values']} {twice['counts']} times: which is it?")


class Dalle2(_Imported):
    """Folders of embeddings as DALLE2-pytorch reads them.

    Args:
        folder: the folder of the part.
        subfolders: the subfolders of `image` and, where they are imported, of `text` and `encoding`.
        index_width: the number of digits at the end of a key that are the row.

    Raises:
        DarkroomError: a folder has no such files.
    """

    def __init__(self, folder: Path, subfolders: dict[str, str], index_width: int) -> None:
        super().__init__(folder, subfolders)
        self._width = index_width

    def shard(self, reader: ImageShards, shard: Shard) -> dict[str, Found]:
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
                    f"the key {key} says neither tar nor row: keys end in {self._width} digits of the row "
                    "(`embed_clip.imported.index_width`), after those of the tar where the images were stored anew."
                )
            places.append((number, int(tail)))
        return {
            name: _rows(files, [place if place[0] in files else None for place in places])
            for name, files in self._files.items()
        }

    def _number(self, shard: Shard, key: str) -> int | None:
        """Return the number of the tar: from its name where it is the original tar, else from the start of the key."""
        text = shard.tar.partition("?")[0] if shard.how is not None else key[: -self._width]
        match = _DIGITS.search(text)
        return int(match[1]) if match else None
