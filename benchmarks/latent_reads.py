"""Random batches of latents: Darkroom's shards against .npy members of webdataset tars, in one run.

    PYTHONPATH=src python benchmarks/latent_reads.py

Both read the same 20,000 means and logvars, in bfloat16 or float32, from files that lie in the page cache, in random
batches, in one process: Darkroom from safetensors shards; tars by an offset index, one `pread` and one parse a member,
the fastest random access that tars allow, and in order through the webdataset library, which is how tars are meant.
All hand over the elements as they are stored. Darkroom checks the sha256 of a latent when a process first reads it,
webdataset never checks; the first pass is a column of its own.
"""

import argparse
import hashlib
import os
import tarfile
import tempfile
import time
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

os.environ["WDS_SECURE"] = "1"  # before webdataset: no pickles, no commands in addresses

import numpy as np
from numpy.typing import NDArray

from darkroom.artifacts.manifest import sha256_file, write_manifest
from darkroom.data.index import LATENTS, IndexWriter
from darkroom.data.latent_file import map_latent_shard, to_bfloat16, write_latent_shard
from darkroom.data.latents import LatentShards

Array = NDArray[np.float32]


def write_darkroom(folder: Path, mean: Array, logvar: Array, dtype: str, shards: int) -> None:
    """Write one part with a train split of so many shards."""
    (folder / "part" / "train").mkdir(parents=True)
    entries = []
    index = IndexWriter(folder / "part" / "train", LATENTS)
    for number, rows in enumerate(np.array_split(np.arange(len(mean)), shards)):
        path = folder / "part" / "train" / f"{number:05d}.safetensors"
        write_latent_shard(path, {"mean": mean[rows], "logvar": logvar[rows]}, dtype)
        file = map_latent_shard(path)
        pairs = zip(file.tensor("mean"), file.tensor("logvar"), strict=True)
        hashes = [hashlib.sha256(one.tobytes() + other.tobytes()).digest() for one, other in pairs]
        index.add([{"key": f"{row:06d}", "sha256": found} for row, found in zip(rows, hashes, strict=True)])
        entries.append({"name": path.stem, "images": len(rows), "sha256": sha256_file(path)})
    write_manifest(
        folder / "part",
        "latents",
        part="part",
        tokenizer="",
        shards="",
        latent={"shape": list(mean.shape[1:]), "dtype": dtype},
        mirror=False,
        splits={"train": {"images": len(mean), "shards": entries, "index_sha256": index.close()}},
        statistics={"count": 0, "sum": [], "sum_of_squares": []},
    )


def write_tars(folder: Path, mean: Array, logvar: Array, dtype: str, shards: int) -> list[tuple[Path, int, int]]:
    """Write tars with a KEY.npy of mean and logvar; return path, offset and size of each member."""
    folder.mkdir()
    index = []
    for number, rows in enumerate(np.array_split(np.arange(len(mean)), shards)):
        path = folder / f"{number:05d}.tar"
        with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as tar:
            for row in rows:
                buffer = BytesIO()
                pair = np.stack([mean[row], logvar[row]])
                np.save(buffer, to_bfloat16(pair) if dtype == "bfloat16" else pair)
                member = tarfile.TarInfo(f"{row:06d}.npy")
                member.size = buffer.tell()
                index.append((path, tar.offset + tarfile.BLOCKSIZE, member.size))
                buffer.seek(0)
                tar.addfile(member, buffer)
    return index


def random_batches(images: int, batch: int) -> Iterator[NDArray[np.int64]]:
    """Yield random rows without end."""
    draws = np.random.default_rng(0)
    while True:
        yield draws.integers(0, images, batch)


def first_pass(reader: LatentShards, batch: int) -> float:
    """Read every latent once, in random order; return samples a second."""
    rows = np.random.default_rng(2).permutation(len(reader))
    began = time.perf_counter()
    for at in range(0, len(rows), batch):
        reader.__getitems__(rows[at : at + batch])
    return len(rows) / (time.perf_counter() - began)


def from_darkroom(reader: LatentShards, batch: int) -> Iterator[int]:
    """Read random batches through `LatentShards`."""
    for rows in random_batches(len(reader), batch):
        yield len(reader.__getitems__(rows)["mean"])


def from_tar_index(index: list[tuple[Path, int, int]], images: int, batch: int) -> Iterator[int]:
    """Read random batches from the tars by offset."""
    files = {path: path.open("rb") for path in {path for path, _, _ in index}}

    def member(row: int) -> Array:
        path, offset, size = index[row]
        return np.load(BytesIO(os.pread(files[path].fileno(), size, offset)))

    for rows in random_batches(images, batch):
        yield len(np.stack([member(row) for row in rows.tolist()]))


def from_webdataset(folder: Path, batch: int) -> Iterator[int]:
    """Read batches in the order of the tars, through the library."""
    import webdataset

    def endless() -> Iterator[Array]:
        while True:
            yield from (sample["npy"] for sample in webdataset.WebDataset(paths, shardshuffle=False).decode())

    paths = [str(path) for path in sorted(folder.glob("*.tar"))]
    samples = endless()
    while True:
        yield len(np.stack([next(samples) for _ in range(batch)]))


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
    options.add_argument("--shards", type=int, default=4)
    options.add_argument("--seconds", type=float, default=6.0, help="of each measurement")
    chosen = options.parse_args()
    print(f"samples a second; {chosen.images:,} latents in {chosen.shards} shards, mean and logvar, one process\n")
    print("| latent | batch | Darkroom, random | first pass | tar by offset, random | webdataset, in order | ratios |")
    print("|---|---|---|---|---|---|---|")
    for shape, dtype in (((4, 8, 8), "float32"), ((4, 32, 32), "bfloat16"), ((4, 32, 32), "float32")):
        draws = np.random.default_rng(1)
        mean, logvar = (draws.standard_normal((chosen.images, *shape), dtype=np.float32) for _ in range(2))
        with tempfile.TemporaryDirectory() as name:
            ours, tars = Path(name) / "darkroom", Path(name) / "tars"
            write_darkroom(ours, mean, logvar, dtype, chosen.shards)
            index = write_tars(tars, mean, logvar, dtype, chosen.shards)
            for batch in (64, 256):
                reader = LatentShards.open_parts(["part"], "train", ours)
                first = first_pass(reader, batch)
                others = from_tar_index(index, chosen.images, batch), from_webdataset(tars, batch)
                found = rate(from_darkroom(reader, batch), chosen.seconds)
                offsets, ordered = (rate(other, chosen.seconds) for other in others)
                print(
                    f"| {'x'.join(map(str, shape))} {dtype} | {batch} | {found:,.0f} | {first:,.0f} | {offsets:,.0f} | "
                    f"{ordered:,.0f} | {found / offsets:.1f}, {found / ordered:.1f} |"
                )


if __name__ == "__main__":
    main()
