"""Finds duplicates in some parts: images with equal pixels, and equal keys."""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from darkroom.data.index import IMAGES, Index
from darkroom.data.splits import SPLITS

_NAMED = 10  # maximum number of groups in the manifest


class Location(NamedTuple):
    """The location of an image: its part, split and key."""

    part: str
    split: str
    key: str


def find_duplicates(manifests: Mapping[str, Mapping[str, Any]], root: Path) -> dict[str, Any]:
    """Return the number of images of some parts that are copies: equal SHA-256 of the stored bytes, so equal pixels.

    Returns:
        images: the number of images that repeat an earlier one; across_parts, across_splits: the number of these whose
        first occurrence is in another part, or in another split (a test image that was trained on); first: up to 10
        groups as lists of "part/split/key".
    """
    found = _repeated(manifests, root, _digest_prefixes, lambda index, rows: index.some("sha256", rows))
    return {
        "images": sum(len(group) - 1 for group in found),
        "across_parts": sum(copy.part != group[0].part for group in found for copy in group[1:]),
        "across_splits": sum(copy.split != group[0].split for group in found for copy in group[1:]),
        "first": [["/".join(copy) for copy in group] for group in found[:_NAMED]],
    }


def find_shared_keys(manifests: Mapping[str, Mapping[str, Any]], root: Path) -> dict[str, Any]:
    """Return the number of keys in more than one part, which is allowed: part and key together identify an image.

    Returns:
        keys: the number of such keys; first: up to 10 of them, each as a list of "part/split/key".
    """
    found = _repeated(manifests, root, _key_prefixes, lambda index, rows: index.some("key", rows))
    return {"keys": len(found), "first": [["/".join(copy) for copy in group] for group in found[:_NAMED]]}


def _repeated(
    manifests: Mapping[str, Mapping[str, Any]],
    root: Path,
    prefixes: Callable[[Index], NDArray[np.uint64]],
    identities: Callable[[Index, Sequence[int]], list[Any]],
) -> list[list[Location]]:
    """Return the groups of rows with equal identities, in the order of their first rows.

    Indexes are read part by part, twice: 64 bits of each row find candidates, which are then compared in full. The
    memory is 8 bytes an image, and the candidates.
    """
    found = [prefixes(index) for _, _, index in _indexes(manifests, root)]
    values, counts = np.unique(np.concatenate([np.empty(0, np.uint64), *found]), return_counts=True)
    candidates = values[counts > 1]
    groups: dict[Any, list[Location]] = {}
    for part, split, index in _indexes(manifests, root) if len(candidates) else ():
        rows = np.flatnonzero(np.isin(prefixes(index), candidates)).tolist()
        for identity, key in zip(identities(index, rows), index.some("key", rows), strict=True):
            groups.setdefault(identity, []).append(Location(part, split, key))
    return [group for group in groups.values() if len(group) > 1]


def _indexes(manifests: Mapping[str, Mapping[str, Any]], root: Path) -> Iterator[tuple[str, str, Index]]:
    for part, manifest in manifests.items():
        for split in SPLITS:
            yield part, split, Index({root / part / split: manifest["splits"][split]}, IMAGES)


def _digest_prefixes(index: Index) -> NDArray[np.uint64]:
    return np.ascontiguousarray(index.digests("sha256")[:, :8]).view(np.uint64).reshape(-1)


def _key_prefixes(index: Index) -> NDArray[np.uint64]:
    hashes = (hashlib.blake2b(key.encode(), digest_size=8).digest() for key in index.texts("key") if key is not None)
    return np.frombuffer(b"".join(hashes), np.uint64)
