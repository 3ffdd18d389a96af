"""Random batches of latents: Darkroom's shards against .npy members of webdataset tars, in one run.

    PYTHONPATH=src python benchmarks/latent_reads.py

Both read the same 20,000 means and logvars (float32) from files that lie in the page cache, in random batches of 64,
in one process: Darkroom from 4 safetensors shards; tars by an offset index, one `pread` and one parse a member, the
fastest random access that tars allow, and in order through the webdataset library, which is how tars are meant.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path

os.environ["WDS_SECURE"] = "1"  # before webdataset: no pickles, no commands in addresses

import numpy as np
from numpy.typing import NDArray

from darkroom.artifacts.hashing import sha256_file
from darkroom.artifacts.manifest import write_manifest
from darkroom.data.index import LATENTS, write_index
from darkroom.data.latent_file import write_latent_shard
from darkroom.data.latents import LatentShards

SHARDS, BATCH = 4, 64
Array = NDArray[np.float32]


def write_darkroom(folder: Path, mean: Array, logvar: Array) -> None:
    """Write one part with a train split of `SHARDS` shards."""
    (folder / "part" / "train").mkdir(parents=True)
    entries = []
    for number, rows in enumerate(np.array_split(np.arange(len(mean)), SHARDS)):
        path = folder / "part" / "train" / f"{number:05d}.safetensors"
        write_latent_shard(path, mean[rows], logvar[rows], "float32")
        index = [{"key": f"{row:06d}", "label": None} for row in rows]
        index_hash = write_index(path.with_suffix(".parquet"), index, LATENTS)
        entries.append(
            {"name": path.stem, "images": len(rows), "sha256": sha256_file(path), "index_sha256": index_hash}
        )
    write_manifest(
        folder / "part",
        "latents",
        part="part",
        tokenizer="",
        shards="",
        latent={"shape": list(mean.shape[1:]), "dtype": "float32"},
        splits={"train": {"images": len(mean), "shards": entries}},
        statistics={"count": 0, "sum": [], "sum_of_squares": []},
    )


def write_tars(folder: Path, mean: Array, logvar: Array) -> list[tuple[Path, int, int]]:
    """Write `SHARDS` tars with a KEY.npy of mean and logvar; return path, offset and size of each member."""
    import tarfile

    folder.mkdir()
    index = []
    for number, rows in enumerate(np.array_split(np.arange(len(mean)), SHARDS)):
        path = folder / f"{number:05d}.tar"
        with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as tar:
            for row in rows:
                buffer = BytesIO()
                np.save(buffer, np.stack([mean[row], logvar[row]]))
                member = tarfile.TarInfo(f"{row:06d}.npy")
                member.size = buffer.tell()
                index.append((path, tar.offset + tarfile.BLOCKSIZE, member.size))
                buffer.seek(0)
                tar.addfile(member, buffer)
    return index


def random_batches(images: int) -> Iterator[NDArray[np.int64]]:
    """Yield random rows without end."""
    draws = np.random.default_rng(0)
    while True:
        yield draws.integers(0, images, BATCH)


def from_darkroom(folder: Path, images: int) -> Iterator[int]:
    """Read random batches through `LatentShards`."""
    reader = LatentShards.open_parts(["part"], "train", folder)
    for rows in random_batches(images):
        yield len(reader.__getitems__(rows)["mean"])


def from_tar_index(index: list[tuple[Path, int, int]], images: int) -> Iterator[int]:
    """Read random batches from the tars by offset."""
    files = {path: path.open("rb") for path in {path for path, _, _ in index}}

    def member(row: int) -> Array:
        path, offset, size = index[row]
        return np.load(BytesIO(os.pread(files[path].fileno(), size, offset)))

    for rows in random_batches(images):
        yield len(np.stack([member(row) for row in rows.tolist()]))


def from_webdataset(folder: Path) -> Iterator[int]:
    """Read batches in the order of the tars, through the library."""
    import webdataset

    def endless() -> Iterator[Array]:
        while True:
            yield from (sample["npy"] for sample in webdataset.WebDataset(paths, shardshuffle=False).decode())

    paths = [str(path) for path in sorted(folder.glob("*.tar"))]
    samples = endless()
    while True:
        yield len(np.stack([next(samples) for _ in range(BATCH)]))


def rate(batches: Iterator[int], seconds: float) -> float:
    """Return samples a second, the median of five turns, after a warm-up."""
    rates = []
    for turn in range(6):
        began, read = time.perf_counter(), 0
        while time.perf_counter() - began < seconds / 6:
            read += next(batches)
        if turn:
            rates.append(read / (time.perf_counter() - began))
    return float(np.median(rates))


def main() -> None:
    """Print a table of samples a second."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--images", type=int, default=20_000)
    options.add_argument("--seconds", type=float, default=6.0, help="of each measurement")
    chosen = options.parse_args()
    print(f"{chosen.images:,} latents, mean and logvar in float32, random batches of {BATCH}, one process\n")
    print(
        "| latent | Darkroom, random | tar by offset, random | webdataset, in order | ratio random | ratio in order |"
    )
    print("|---|---|---|---|---|---|")
    for shape in ((4, 8, 8), (4, 32, 32)):
        draws = np.random.default_rng(1)
        mean, logvar = (draws.standard_normal((chosen.images, *shape), dtype=np.float32) for _ in range(2))
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            write_darkroom(folder / "darkroom", mean, logvar)
            index = write_tars(folder / "tars", mean, logvar)
            readers: list[Callable[[], Iterator[int]]] = [
                lambda folder=folder: from_darkroom(folder / "darkroom", chosen.images),
                lambda index=index: from_tar_index(index, chosen.images),
                lambda folder=folder: from_webdataset(folder / "tars"),
            ]
            ours, offsets, ordered = (rate(reader(), chosen.seconds) for reader in readers)
        size = "x".join(map(str, shape))
        print(
            f"| {size} | {ours:,.0f} | {offsets:,.0f} | {ordered:,.0f} | {ours / offsets:.1f} | {ours / ordered:.1f} |"
        )


if __name__ == "__main__":
    main()
