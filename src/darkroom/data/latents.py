"""Reads stored latents by row number: mean and logvar of each image, in the rows of the image shards."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from darkroom.artifacts.manifest import ArtifactError, check_file, manifest_hash, read_manifest
from darkroom.data.index import LATENTS, Index
from darkroom.data.latent_file import KIND, TENSORS, map_latent_shard, to_float32

LATENT_PARTS = Path("data/latents")


class LatentStatistics(NamedTuple):
    """Of z ~ N(mean, exp(logvar)) over the train split: one mean and one standard deviation a channel."""

    mean: list[float]
    std: list[float]


class LatentShards:
    """Latents of one split of some parts, by row, read through memory maps.

    Opening checks each manifest, the sha256 of every file, and the counts. In memory stand keys and labels alone. Safe
    to use in forked processes, and to pickle.

    shape: (C, h, w) of a latent.
    tokenizer: the hash of the tokenizer that made them, the same for all parts.
    statistics: `LatentStatistics`, merged over the parts in float64.
    sources: for each part, the sha256 of the manifest of the image shards it was made from.
    """

    def __init__(self, manifests: dict[str, dict[str, Any]], split: str, root: Path) -> None:
        """Open shards from the parts' manifests, after `open_parts` has checked that they fit together."""
        first = next(iter(manifests.values()))
        self.shape: tuple[int, int, int] = tuple(first["latent"]["shape"])
        self.tokenizer: str = first["tokenizer"]
        self.sources: dict[str, str] = {part: manifest["shards"] for part, manifest in manifests.items()}
        self._totals = [manifest["statistics"] for manifest in manifests.values()]
        self._paths: list[Path] = []
        firsts = [0]
        folders = {}
        for part, manifest in manifests.items():
            folder = root / part / split
            folders[folder] = manifest["splits"][split]
            for entry in manifest["splits"][split]["shards"]:
                path = folder / f"{entry['name']}.safetensors"
                check_file(path, entry["sha256"])
                _check_shape(path, (entry["images"], *self.shape))
                self._paths.append(path)
                firsts.append(firsts[-1] + entry["images"])
        self._firsts = np.array(firsts, dtype=np.int64)
        self._index = Index(folders, LATENTS)
        self._maps: dict[int, dict[str, NDArray[Any]]] = {}

    @classmethod
    def open_parts(
        cls, parts: Sequence[str], split: str, root: Path = LATENT_PARTS, shards_root: Path | None = None
    ) -> "LatentShards":
        """Open one split ("train", "val" or "test") of some parts; rows come in the order of `parts`.

        Args:
            parts: their names.
            split: which images.
            root: the folder with a folder of latents for each part.
            shards_root: where given (data/shards), each part must have been made from the image shards that lie there.
                A training on latents does not depend on image shards and gives none.

        Raises:
            ArtifactError: a file is missing or damaged, the parts come from different tokenizers or have different
                shapes, or the image shards are others; names part or file.
        """
        manifests = {part: read_manifest(root / part, KIND) for part in parts}
        if not manifests:
            raise ArtifactError("no part was asked for: name at least one under `parts` in params.yaml.")
        (one, first), *others = manifests.items()
        for part, manifest in others:
            for fact, what in (("tokenizer", "different tokenizers"), ("latent", "different shapes or dtypes")):
                if manifest[fact] != first[fact]:
                    raise ArtifactError(
                        f"the latents of `{one}` and `{part}` have {what} ({first[fact]} and {manifest[fact]}): "
                        "encode both again (`dvc repro encode_latents`)."
                    )
        if shards_root is not None:
            for part, manifest in manifests.items():
                if manifest["shards"] != manifest_hash(shards_root / part):
                    raise ArtifactError(
                        f"the latents of `{part}` were made from other images than those in {shards_root / part}: "
                        f"encode them again (`dvc repro encode_latents@{part}`)."
                    )
        return cls(manifests, split, root)

    def __len__(self) -> int:
        return int(self._firsts[-1])

    @property
    def keys(self) -> list[str]:
        """The key of each row's image."""
        return [str(key) for key in self._index.texts("key")]

    @property
    def labels(self) -> list[str | None]:
        """The name of each row's class; None where the image has no label."""
        return self._index.texts("label")

    @property
    def statistics(self) -> LatentStatistics:
        """Mean and standard deviation of each channel of the train split of these parts.

        mean = sum(E[z]) / n, variance = sum(E[z²]) / n - mean², E[z²] = mean² + exp(logvar); the sums stand in the
        parts' manifests, so that adding a part reads no other part's latents.

        Raises:
            ArtifactError: no part has an image in its train split.
        """
        count = sum(total["count"] for total in self._totals)
        if not count:
            raise ArtifactError(
                f"none of the parts {', '.join(self.sources)} has an image in its train split: there are no latents to "
                "normalise by; add images, or raise `ingest.splits.train`."
            )
        mean = np.sum([total["sum"] for total in self._totals], axis=0, dtype=np.float64) / count
        square = np.sum([total["sum_of_squares"] for total in self._totals], axis=0, dtype=np.float64) / count
        return LatentStatistics(mean.tolist(), np.sqrt(square - mean**2).tolist())

    def __getitems__(self, rows: Sequence[int] | NDArray[np.int64]) -> dict[str, NDArray[np.float32]]:
        """Return `mean` and `logvar` of some rows, each float32 (N, C, h, w), in the order of `rows`.

        Raises:
            IndexError: a row lies outside.
        """
        wanted = np.asarray(rows, dtype=np.int64)
        if wanted.size and (wanted.min() < 0 or wanted.max() >= len(self)):
            raise IndexError(f"rows {wanted.min()} to {wanted.max()} of {len(self)}")
        shard_of = np.searchsorted(self._firsts, wanted, side="right") - 1
        latents = {name: np.empty((len(wanted), *self.shape), dtype=np.float32) for name in TENSORS}
        for number in np.unique(shard_of).tolist():
            places = np.flatnonzero(shard_of == number)
            inside = wanted[places] - self._firsts[number]
            for name, stored in self._map(number).items():
                latents[name][places] = to_float32(stored[inside])
        return latents

    def _map(self, number: int) -> dict[str, NDArray[Any]]:
        if number not in self._maps:
            self._maps[number] = map_latent_shard(self._paths[number])
        return self._maps[number]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_maps": {}}


def _check_shape(path: Path, shape: tuple[int, ...]) -> None:
    found = {values.shape for values in map_latent_shard(path).values()}
    if found != {shape}:
        raise ArtifactError(
            f"{path} holds latents of shape {found}, and the manifest says {shape}: run encode_latents again."
        )
