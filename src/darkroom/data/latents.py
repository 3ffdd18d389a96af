"""Reads stored latents by row number; rows are those of the image shards. A row is mean and logvar, mean, or codes."""

import hashlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from darkroom.artifacts.manifest import ArtifactError, read_manifest
from darkroom.data.index import LATENTS, Index, Indexed
from darkroom.data.latent_file import (
    DTYPES,
    FORMS,
    KIND,
    LatentFile,
    map_latent_shard,
    mirrored,
    read_codebook,
    stored_shape,
    to_float32,
)
from darkroom.data.together import require_fit

LATENT_PARTS = Path("data/latents")
_THREADS = 4  # threads that open shards in parallel
# A channel whose variance is below this fraction of its mean square is constant: the rest is rounding of the sums.
_CONSTANT = 1e-12
_NOT_PICKLED = ("_contents", "_starts", "_sha256", "_checked")  # made anew in the process that unpickles


class LatentStatistics(NamedTuple):
    """Mean and standard deviation of each channel of z ~ N(mean, exp(logvar)) over the train split."""

    mean: list[float]
    std: list[float]


class _Shard(NamedTuple):
    """A file, and its entry in the manifest."""

    path: Path
    images: int
    sha256: str
    mirror: bool


class _Stored(NamedTuple):
    """The format that all files of latents of one dataset share: form, shape of a row, and dtype."""

    form: str
    row: tuple[int, ...]
    dtype: str


class LatentShards(Indexed):
    """Latents of one split of some parts, by row, read through memory maps.

    Opening checks each manifest, the SHA-256 and counts of each index, and size and header of each file; it reads no
    latent, since there may be a terabyte of them. A latent is checked against its SHA-256 in the index when it is
    first read by this object in this process. Only the index is kept in memory. Safe to use in forked processes, and
    to pickle.

    shape: (C, h, w) of a latent.
    form: distribution (mean and logvar), point (mean), or codes.
    codebook: the vectors of the codes, float32 (K, C); None for the other forms.
    mirrors: whether the latent of the mirror image is stored too, bool (N,).
    tokenizer: the hash of the tokenizer that made the latents, the same for all parts.
    statistics: `LatentStatistics`, merged over the parts in float64.
    sources: for each part, the SHA-256 of the manifest of its image shards.
    """

    def __init__(self, manifests: dict[str, dict[str, Any]], split: str, root: Path) -> None:
        """Open shards from the parts' manifests, after `open_parts` has checked that they fit together."""
        first = next(iter(manifests.values()))
        self.shape: tuple[int, int, int] = tuple(first["latent"]["shape"])
        self.form: str = _alike(first)["forms"]
        book = first.get("codebook")
        self.codebook = read_codebook(root / next(iter(manifests)), book["sha256"]) if book else None
        self.tokenizer: str = first["tokenizer"]
        self.sources: dict[str, str] = {part: manifest["shards"] for part, manifest in manifests.items()}
        self._totals = [manifest["statistics"] for manifest in manifests.values()]
        self._shards: list[_Shard] = []
        folders = {}
        for part, manifest in manifests.items():
            folder = root / part / split
            folders[folder] = manifest["splits"][split]
            for entry in manifest["splits"][split]["shards"]:
                path = folder / f"{entry['name']}.safetensors"
                self._shards.append(_Shard(path, entry["images"], entry["sha256"], manifest["mirror"]))
        images = [shard.images for shard in self._shards]
        self._firsts = np.concatenate([[0], np.cumsum(images, dtype=np.int64)])
        self.mirrors = np.repeat([shard.mirror for shard in self._shards], images).astype(bool)
        self._index = Index(folders, LATENTS)
        self._names = FORMS[self.form]
        self._stored = _Stored(self.form, stored_shape(self.form, self.shape), first["latent"]["dtype"])
        self._row_bytes = int(np.prod(self._stored.row)) * DTYPES[self._stored.dtype].itemsize
        self._map()

    def _map(self) -> None:
        """Map the files and check their headers."""
        with ThreadPoolExecutor(_THREADS) as pool:
            files = list(pool.map(lambda shard: _open(shard, self._stored), self._shards))
        self._contents = [file.content for file in files]
        # The offset of each tensor in each file; 0 for a missing tensor, which is refused before it is read.
        self._starts = {
            mirror: np.array([[file.starts.get(name, 0) for file in files] for name in names], dtype=np.int64)
            for mirror, names in ((False, self._names), (True, mirrored(self._names)))
        }
        names = ("sha256", "sha256_mirror") if self.mirrors.any() else ("sha256",)
        self._index.load(*names)
        self._sha256 = [self._index.digests(name) for name in names]
        self._checked = np.zeros((2, len(self)), dtype=bool)

    @classmethod
    def open_parts(
        cls, parts: Sequence[str], split: str, root: Path = LATENT_PARTS, shards_root: Path | None = None
    ) -> "LatentShards":
        """Open one split ("train", "val" or "test") of some parts; rows come in the order of `parts`.

        Args:
            parts: the names of the parts.
            split: "train", "val" or "test".
            root: the folder with a folder of latents for each part.
            shards_root: the folder of the image shards (data/shards): each part must have been made from them. None:
                not checked, as in a training on latents, which does not depend on image shards.

        Raises:
            ArtifactError: a file is missing or damaged, the parts come from different tokenizers or have different
                forms, shapes or codebooks, or the image shards have changed; the message names part or file.
        """
        manifests = {part: read_manifest(root / part, KIND) for part in parts}
        require_fit("latents", manifests, _alike, shards_root, "encode_latents")
        return cls(manifests, split, root)

    def __len__(self) -> int:
        return int(self._firsts[-1])

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

    def principal_deviation(self, most: int = 4096) -> float:
        """Return the standard deviation of these latents along the direction of the channels in which they vary most.

        Of latents with variance 1 in each channel: the square root of the largest eigenvalue of the channels'
        correlation matrix: 1 for uncorrelated channels, √C for C equal channels. It is computed from at most `most`
        evenly spaced rows, and rounded to three digits, so that all machines get the same value.
        """
        mean, std = (np.array(each) for each in self.statistics)
        rows = self.__getitems__(np.unique(np.linspace(0, len(self) - 1, min(most, len(self))).astype(np.int64)))
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

    def __getitems__(
        self, rows: Sequence[int] | NDArray[np.int64], mirror: NDArray[np.bool_] | None = None
    ) -> dict[str, NDArray[Any]]:
        """Return some rows as they are stored, in the order of `rows`.

        Args:
            rows: row numbers.
            mirror: whether to return the latent of the mirror image, bool (N,); None: of no row.

        Returns:
            `mean` and `logvar`, or `mean` alone, each (N, C, h, w), float32, or uint16 with the bits of a bfloat16
            (`to_float32` widens them); or `codes` (N, h, w), uint16 or int32.

        Raises:
            IndexError: a row is out of range, or has no mirror image.
            ArtifactError: the bytes of a latent have changed; the message names shard and key.
        """
        wanted = np.asarray(rows, dtype=np.int64)
        if wanted.size and (wanted.min() < 0 or wanted.max() >= len(self)):
            raise IndexError(f"rows {wanted.min()} to {wanted.max()} of {len(self)}")
        shards = np.searchsorted(self._firsts, wanted, side="right") - 1
        inside = (wanted - self._firsts[shards]) * self._row_bytes
        starts = self._starts[False][:, shards]  # (tensors, N)
        if mirror is not None and mirror.any():
            if not self.mirrors[wanted[mirror]].all():
                raise IndexError("the latent of a mirror image is requested where there is none")
            starts = np.where(mirror, self._starts[True][:, shards], starts)
        # One array: of two, the allocator returns the second to the system each time, and pages are zeroed again.
        # Slices of bytes cost the same for any number of shards: NumPy's indexing needs a call for each shard, and a
        # second copy to restore the order of the rows.
        count, dtype = len(self._names), DTYPES[self._stored.dtype]
        latents = np.empty((count, len(wanted), *self._stored.row), dtype=dtype)
        flat: Any = latents.reshape(-1).view(np.uint8)
        target, size, at = memoryview(flat), self._row_bytes, 0
        contents = [self._contents[shard] for shard in shards.tolist()] * count
        for content, start in zip(contents, (starts + inside).reshape(-1).tolist(), strict=True):
            target[at : at + size] = content[start : start + size]
            at += size
        self._check(wanted, 0 if mirror is None else mirror.astype(np.intp), latents)
        return dict(zip(self._names, latents, strict=True))

    def _check(self, rows: NDArray[np.int64], sides: NDArray[np.intp] | int, latents: NDArray[Any]) -> None:
        """Check the latents that were not read before in this process against their SHA-256."""
        checked = self._checked[sides, rows]
        if checked.all():
            return
        sides = np.broadcast_to(sides, rows.shape)
        for place in np.flatnonzero(~checked).tolist():
            side, row = int(sides[place]), int(rows[place])
            found = hashlib.sha256(b"".join(values.data for values in latents[:, place])).digest()
            if found != self._sha256[side][row].tobytes():
                path = Path(self.file_of(row))
                raise ArtifactError(
                    f"{path}: the latent of the image {self.keys_of([row])[0]} is corrupted (its sha256 is not that of "
                    f"the index): delete the shard and restore it with `dvc checkout {path.parent}`, or run "
                    "encode_latents again."
                )
            self._checked[side, row] = True

    def file_of(self, row: int) -> str:
        """Return the path of the file that holds a row."""
        return str(self._shards[int(np.searchsorted(self._firsts, row, side="right")) - 1].path)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in _NOT_PICKLED}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._map()


def _alike(manifest: dict[str, Any]) -> dict[str, Any]:
    """Return the metadata that all parts must share; a manifest without a form is of format 1: a distribution."""
    latent, book = manifest["latent"], manifest.get("codebook")
    return {
        "tokenizers": manifest["tokenizer"],
        "forms": latent.get("form", "distribution"),
        "shapes": latent["shape"],
        "dtypes": latent["dtype"],
        "codebooks": book and book["sha256"],
    }


def _open(shard: _Shard, stored: _Stored) -> LatentFile:
    file = map_latent_shard(shard.path)
    found = _shown(_Stored(file.form, file.shape[1:], file.dtype_name), file.shape[0], file.mirror)
    if found != (expected := _shown(stored, shard.images, shard.mirror)):
        raise ArtifactError(
            f"{shard.path} holds latents of {found}, and the manifest says {expected}: run encode_latents again."
        )
    return file


def _shown(stored: _Stored, images: int, mirror: bool) -> str:
    images_of = "with" if mirror else "without"
    return (
        f"shape {(images, *stored.row)} in {stored.dtype}, {' and '.join(FORMS[stored.form])}, {images_of} those of "
        "mirror images"
    )
