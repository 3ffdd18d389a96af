"""Read stored latents by row number, as in the image shards. A row is mean and logvar, mean, or codes."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from darkroom.artifacts.manifest import ArtifactError
from darkroom.data.latent_file import (
    DTYPES,
    FORMS,
    KIND,
    VIEWS,
    map_latent_shard,
    read_codebook,
    stored_shape,
    to_float32,
    views,
)
from darkroom.data.rows import Rows, StoredRows, StoredShard

LATENT_PARTS = Path("data/latents")
# A channel whose variance is below this fraction of its mean square is constant: the rest is rounding of the sums.
_CONSTANT = 1e-12
_MIRRORED = VIEWS.index("_mirror")  # the first view of the mirror image


class LatentStatistics(NamedTuple):
    """Mean and standard deviation of each channel of z ~ N(mean, exp(logvar)) over the train split."""

    mean: list[float]
    std: list[float]


class LatentShards(StoredRows):
    """Latents of one split of some parts, by row; see `StoredRows`.

    shape: (C, h, w) of a latent.
    form: distribution (mean and logvar), point (mean), or codes.
    codebook: the vectors of the codes, float32 (K, C); None for the other forms.
    mirrors: whether the latent of the mirror image is stored too, bool (N,).
    shift: the displacement of moved images, in pixels; 0: there are none. Only the train split has them.
    tokenizer: the hash of the tokenizer that made the latents, the same for all parts.
    statistics: `LatentStatistics`, merged over the parts in float64.
    """

    kind, plural, stage, folder = KIND, "latents", "encode_latents", LATENT_PARTS

    def __init__(self, manifests: Mapping[str, Mapping[str, Any]], split: str, root: Path) -> None:
        """Open shards from the parts' manifests, after `open_parts` has checked that they fit together."""
        super().__init__(manifests, split, root)
        first = next(iter(manifests.values()))
        self.shape: tuple[int, int, int] = tuple(first["latent"]["shape"])
        self.form: str = self._alike(first)["forms"]
        book = first.get("codebook")
        self.codebook = read_codebook(root / next(iter(manifests)), book["sha256"]) if book else None
        self.tokenizer: str = first["tokenizer"]
        self._totals = [manifest["statistics"] for manifest in manifests.values()]
        images = [shard.images for shard in self._shards]
        self.mirrors = np.repeat([shard.mirror for shard in self._shards], images).astype(bool)
        self.shift: int = self._alike(first)["shifts"] if split == "train" else 0
        self._row, self._dtype = stored_shape(self.form, self.shape), first["latent"]["dtype"]
        self._map()

    @staticmethod
    def _alike(manifest: Mapping[str, Any]) -> dict[str, Any]:
        latent, book = manifest["latent"], manifest.get("codebook")
        return {
            "tokenizers": manifest["tokenizer"],
            "forms": latent.get("form", "distribution"),  # of format 1
            "shapes": latent["shape"],
            "dtypes": latent["dtype"],
            "codebooks": book and book["sha256"],
            "shifts": manifest.get("shift", 0),
        }

    def _path(self, shard: StoredShard, name: str) -> Path:
        return shard.folder / f"{shard.name}.safetensors"

    def _opened(self, shard: StoredShard) -> dict[str, memoryview]:
        path = self._path(shard, "")
        file = map_latent_shard(path)
        actual = file.form, file.shape, file.dtype_name, file.mirror, file.shift
        if actual != (expected := (self.form, (shard.images, *self._row), self._dtype, shard.mirror, shard.shift)):
            raise ArtifactError(
                f"{path} has latents of form, shape, dtype, mirroring and shift {actual}, but the manifest says "
                f"{expected}: run encode_latents again."
            )
        return {name: file.content[start:] for name, start in file.starts.items()}

    def _map(self) -> None:
        super()._map()
        self._load_digests(*(f"sha256{view}" for view in views(bool(self.mirrors.any()), self.shift > 0)))

    @property
    def statistics(self) -> LatentStatistics:
        """Mean and standard deviation of each channel of the train split of these parts.

        mean = sum(E[z]) / n, variance = sum(E[z²]) / n - mean², E[z²] = mean² + exp(logvar). The sums are in the
        manifests of the parts, so that adding a part reads no latents of the others. A point has no exp(logvar); of
        codes, z is their vectors. A constant channel has the standard deviation 0.

        Raises:
            ArtifactError: no part has an image in its train split.
        """
        count = sum(total["count"] for total in self._totals)
        if not count:
            raise ArtifactError(
                f"none of the parts {', '.join(self.sources)} has an image in its train split, so latents cannot be "
                "normalised: add images, or raise `ingest.splits.train`."
            )
        mean = np.sum([total["sum"] for total in self._totals], axis=0, dtype=np.float64) / count
        square = np.sum([total["sum_of_squares"] for total in self._totals], axis=0, dtype=np.float64) / count
        variance = square - mean**2
        return LatentStatistics(mean.tolist(), np.sqrt(np.where(variance > _CONSTANT * square, variance, 0.0)).tolist())

    def principal_deviation(self, max_rows: int = 4096) -> float:
        """Return the standard deviation of these latents along the direction of the channels in which they vary most.

        Of latents with variance 1 in each channel: the square root of the largest eigenvalue of the channels'
        correlation matrix: 1 for uncorrelated channels, √C for C equal channels. It is computed from at most `max_rows`
        evenly spaced rows, and rounded to three digits, so that all machines get the same value.
        """
        mean, std = (np.array(each) for each in self.statistics)
        rows = self.__getitems__(np.unique(np.linspace(0, len(self) - 1, min(max_rows, len(self))).astype(np.int64)))
        if self.codebook is not None:
            z = self.codebook[rows["codes"]].reshape(-1, len(mean)).T
        else:
            z = np.moveaxis(to_float32(rows["mean"]), 1, 0).reshape(len(mean), -1)
        varies = std > 0
        z = ((z.astype(np.float64) - mean[:, None])[varies]) / std[varies, None]
        correlation = z @ z.T / z.shape[1]
        if "logvar" in rows:
            spread = np.exp(to_float32(rows["logvar"]).astype(np.float64)).mean(axis=(0, 2, 3))
            correlation += np.diag(spread[varies] / std[varies] ** 2)
        return float(f"{np.sqrt(np.linalg.eigvalsh(correlation)[-1]):.3g}") if varies.any() else 1.0

    def __getitems__(self, rows: Rows, view: NDArray[np.integer] | None = None) -> dict[str, NDArray[Any]]:
        """Return some rows as they are stored, in the order of `rows`; `view` is the number of each in `VIEWS`, (N,).

        Returns:
            `mean` and `logvar`, or `mean` alone, each (N, C, h, w), float32, or uint16 with the bits of a bfloat16
            (`to_float32` widens them); or `codes` (N, h, w), uint16 or int32.

        Raises:
            IndexError: a row is out of range, or has no such view.
            ArtifactError: the bytes of a latent have changed; the message names shard and key.
        """
        numbers, shards, inside = self._located(rows)
        view = np.zeros(len(numbers), dtype=np.int64) if view is None else view
        if not self.mirrors[numbers[view >= _MIRRORED]].all() or (not self.shift and (view % _MIRRORED).any()):
            raise IndexError("a latent of a mirror or moved image is requested, but not stored")
        names = FORMS[self.form]
        # One array: with two, the allocator returns the second to the system each time, and its pages are zeroed again.
        latents = np.empty((len(names), len(numbers), *self._row), dtype=DTYPES[self._dtype])
        places = list(zip(shards.tolist(), view.tolist(), strict=True))
        for values, name in zip(latents, names, strict=True):
            stored = [self._views.get(name + suffix, []) for suffix in VIEWS]
            self._fill(values, [stored[number][shard] for shard, number in places], inside)
        for number in sorted(set(view.tolist())):
            self._check(f"sha256{VIEWS[number]}", numbers, np.flatnonzero(view == number), latents, "latent")
        return dict(zip(names, latents, strict=True))
