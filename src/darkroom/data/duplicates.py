"""Images that come more than once: equal pixels, under different keys or in different parts."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from darkroom.data.index import IMAGES, Index
from darkroom.data.splits import SPLITS

_NAMED = 10  # groups that are named in the manifest


def find_duplicates(manifests: Mapping[str, Mapping[str, Any]], root: Path) -> dict[str, Any]:
    """Return how many images of some parts are copies: equal sha256 of the stored bytes, hence equal pixels.

    Returns:
        images: images that repeat an earlier one; across_parts, across_splits: those of them whose first occurrence is
        in another part, in another split (a test image that was trained on); first: up to 10 groups as lists of
        "part/split/key".

    Indexes are read part by part, twice; in memory stand 8 bytes an image, and the copies.
    """
    prefixes = [_prefixes(index) for _, _, index in _indexes(manifests, root)]
    values, counts = np.unique(np.concatenate([np.empty(0, np.uint64), *prefixes]), return_counts=True)
    repeated = values[counts > 1]
    groups: dict[bytes, list[tuple[str, str, str]]] = {}
    for part, split, index in _indexes(manifests, root) if len(repeated) else ():
        for row in np.flatnonzero(np.isin(_prefixes(index), repeated)).tolist():
            groups.setdefault(index.digests("sha256")[row].tobytes(), []).append(
                (part, split, index.column("key")[row].as_py())
            )
    found = [group for group in groups.values() if len(group) > 1]
    return {
        "images": sum(len(group) - 1 for group in found),
        "across_parts": sum(copy[0] != group[0][0] for group in found for copy in group[1:]),
        "across_splits": sum(copy[1] != group[0][1] for group in found for copy in group[1:]),
        "first": [["/".join(copy) for copy in group] for group in found[:_NAMED]],
    }


def _indexes(manifests: Mapping[str, Mapping[str, Any]], root: Path) -> Iterator[tuple[str, str, Index]]:
    for part, manifest in manifests.items():
        for split in SPLITS:
            yield part, split, Index({root / part / split: manifest["splits"][split]}, IMAGES)


def _prefixes(index: Index) -> NDArray[np.uint64]:
    """Return the first 64 bits of each row's sha256: enough to find candidates, which are then compared in full."""
    return np.ascontiguousarray(index.digests("sha256")[:, :8]).view(np.uint64).reshape(-1)
