"""Checks tars that are indexed in place, which are no outputs of DVC, and names the damaged images of a tar."""

import hashlib
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import fsspec
import pyarrow.parquet as pq

from darkroom.artifacts.manifest import ArtifactError, check_seal, read_manifest, sha256_file
from darkroom.data.index import NAME as INDEX
from darkroom.data.layout import KIND, SHARDS
from darkroom.data.splits import SPLITS
from darkroom.errors import DarkroomError
from darkroom.remote import is_remote, local_path, redacted, telling
from darkroom.terminal.terminal import with_progress
from darkroom.tools.verify.problems import Problem

_WORKERS = 8  # tars that are read at once; hashing releases the interpreter lock
_DAMAGED = "is damaged: its sha256 is not that of the {}"

Places = list[tuple[Path, int]]  # indexes, and in each the row group of a tar


def damaged_images(tar: Path, places: Places) -> Iterator[str]:
    """Yield the keys of the images whose bytes in a tar are not those of the index; none where no index can be read."""
    with tar.open("rb") as file:
        for index, group in places:
            try:
                rows = pq.ParquetFile(index).read_row_group(group, columns=["key", "offset", "size", "sha256"])
            except (OSError, ValueError, IndexError):  # reported as damage of the index
                continue
            for row in rows.to_pylist():
                file.seek(row["offset"])
                if hashlib.sha256(file.read(row["size"])).digest() != row["sha256"]:
                    yield row["key"]


def image_problems(tar: Path | str, keys: Iterable[str], remedy: str) -> Iterator[Problem]:
    """Yield the errors of images of a tar."""
    return (Problem(tar, _DAMAGED.format("index"), remedy, key) for key in keys)


def in_place(name: str) -> dict[str, tuple[str, Places]]:
    """Return the tars of a part that is indexed in place: by path or URL the SHA-256, and the places of their images.

    Empty for a part whose images are stored, and for one whose manifest is damaged, as the check of the outputs says.
    """
    tars: dict[str, tuple[str, Places]] = {}
    try:
        check_seal(SHARDS / name)
        manifest = read_manifest(SHARDS / name, KIND)
    except ArtifactError:
        return tars
    for split in SPLITS if manifest["in_place"] else ():
        for group, entry in enumerate(manifest["splits"][split]["shards"]):
            tars.setdefault(entry["tar"], (entry["sha256"], []))[1].append((SHARDS / name / split / INDEX, group))
    return tars


def check_in_place(name: str, tars: dict[str, tuple[str, Places]]) -> list[Problem]:
    """Return the errors of tars of a part, and report progress."""
    remedy = f"it changed since it was indexed; put the old file back, or index it again with `dvc repro ingest@{name}`"
    with ThreadPoolExecutor(_WORKERS) as pool:
        found = pool.map(lambda tar: _check(tar, *tars[tar], remedy), tars)
        each = with_progress(([problems] for problems in found), len(tars), name, "tars")
        return [problem for (problems,) in each for problem in problems]


def _check(tar: str, expected: str, places: Places, remedy: str) -> list[Problem]:
    shown = redacted(tar) if is_remote(tar) else tar
    try:
        if is_remote(tar):
            # Network clients raise errors of many types, whose texts may contain signed links.
            with telling("cannot be read"), fsspec.open(tar, "rb") as stream:
                sha256 = hashlib.file_digest(stream, "sha256").hexdigest()
        else:
            sha256 = sha256_file(local_path(tar))
        if sha256 == expected:
            return []
        keys = [] if is_remote(tar) else list(damaged_images(local_path(tar), places))
        return [Problem(shown, _DAMAGED.format("manifest"), remedy), *image_problems(shown, keys, remedy)]
    except FileNotFoundError:
        return [Problem(shown, "is missing", remedy)]
    except (OSError, DarkroomError) as error:
        return [Problem(shown, "cannot be read", remedy, detail=redacted(str(error)).rstrip("."))]
