"""Random batches of latents: Darkroom's shards beside a memory-mapped safetensors file, as most people do.

    PYTHONPATH=src python benchmarks/latent_reads.py

All read the same 20,000 means and logvars, bfloat16 or float32, from files in the page cache, in one process: Darkroom
through `LatentShards`; a shuffled DataLoader over a TensorDataset of two memory-mapped tensors; and plain indexing of
these tensors with a batch of rows. Darkroom checks the SHA-256 of a latent when a process first reads it, the others
never do; that pass is a column of its own.
"""

import argparse
import hashlib
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

from darkroom.artifacts.manifest import sha256_file, write_manifest
from darkroom.data.index import LATENTS, IndexWriter
from darkroom.data.latent_file import map_latent_shard, write_latent_shard
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


def write_plain(path: Path, mean: Array, logvar: Array, dtype: str) -> dict[str, Tensor]:
    """Write one safetensors file, and return its tensors, mapped into memory."""
    tensors = {name: torch.from_numpy(rows) for name, rows in {"mean": mean, "logvar": logvar}.items()}
    save_file({name: rows.to(getattr(torch, dtype)) for name, rows in tensors.items()}, path)
    return load_file(path)


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


def from_loader(tensors: dict[str, Tensor], batch: int) -> Iterator[int]:
    """Read shuffled batches through a DataLoader."""
    loader = DataLoader(TensorDataset(*tensors.values()), batch, shuffle=True)
    while True:
        yield from (len(mean) for mean, _ in loader)


def from_indexing(tensors: dict[str, Tensor], batch: int) -> Iterator[int]:
    """Read random batches by indexing."""
    for rows in random_batches(len(tensors["mean"]), batch):
        mean, _ = (stored[torch.from_numpy(rows)] for stored in tensors.values())
        yield len(mean)


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
    print("| latent | batch | Darkroom | first pass | DataLoader | indexing | Darkroom / DataLoader, / indexing |")
    print("|---|---|---|---|---|---|---|")
    for shape, dtype in (((4, 8, 8), "float32"), ((4, 32, 32), "bfloat16"), ((4, 32, 32), "float32")):
        draws = np.random.default_rng(1)
        mean, logvar = (draws.standard_normal((chosen.images, *shape), dtype=np.float32) for _ in range(2))
        with tempfile.TemporaryDirectory() as name:
            ours = Path(name) / "darkroom"
            write_darkroom(ours, mean, logvar, dtype, chosen.shards)
            plain = write_plain(Path(name) / "latents.safetensors", mean, logvar, dtype)
            for batch in (64, 256):
                reader = LatentShards.open_parts(["part"], "train", ours)
                first = first_pass(reader, batch)
                readers = from_darkroom(reader, batch), from_loader(plain, batch), from_indexing(plain, batch)
                found, loader, indexing = (rate(each, chosen.seconds) for each in readers)
                print(
                    f"| {'x'.join(map(str, shape))} {dtype} | {batch} | {found:,.0f} | {first:,.0f} | {loader:,.0f} | "
                    f"{indexing:,.0f} | {found / loader:.1f}, {found / indexing:.2f} |"
                )


if __name__ == "__main__":
    main()
