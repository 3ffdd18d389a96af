"""The index of ImageNet's size: 1.281 million images in 1,281 shards and 16 parts, opened, shuffled, split, counted.

    PYTHONPATH=src python benchmarks/large_index.py

Manifests and indexes are real; the tars are holes of the right size, as nothing here reads an image. What follows is
measured in a process of its own, which has only to open what lies there; the page cache is warm.
"""

import argparse
import hashlib
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from darkroom.artifacts.manifest import sha256_bytes, write_manifest
from darkroom.data.catalog import Catalog
from darkroom.data.catalog_writer import find_duplicates, find_shared_keys
from darkroom.data.images import ImageSpec
from darkroom.data.index import IMAGES, LATENTS, IndexWriter
from darkroom.data.latents import LatentShards
from darkroom.data.layout import KIND
from darkroom.data.reader import ImageShards
from darkroom.data.splits import SPLITS, split_of
from darkroom.data.streaming import StreamingOrder
from darkroom.rng import order
from darkroom.training.data import label_numbers

PARTS, SHARD, CLASSES, BATCH = 16, 1000, 1000, 256
TRAIN = 78  # shards of a part's train split; one more in the first part, and one each in val and test
SIZE, LATENT = 100_000, (4, 32, 32)
SHARES = {"train": 0.975, "val": 0.0125, "test": 0.0125}


def shards_of(part: int, split: str) -> int:
    """Return how many shards a split of a part has: 1,281 in all."""
    return TRAIN + (part == 0) if split == "train" else 1


def row(part: int, split: str, number: int) -> dict[str, Any]:
    """Return the row of an image; nothing in it compresses better than in a real one."""
    key = f"n{(part * 1_000_000 + number):08d}_{split}"
    digest = hashlib.sha256(key.encode()).digest()
    name = f"class {int.from_bytes(digest[:4]) % CLASSES:03d}"
    sizes = {"width": 256, "height": 256, "original_width": 500, "original_height": 300 + digest[5]}
    place = {"offset": 512 + number % SHARD * SIZE, "size": SIZE - digest[6] * 99}
    return {"key": key, "sha256": digest, "label": name, "caption": f"a photo of a {name}", **sizes, **place}


def write(root: Path) -> None:
    """Write parts of images below `shards`, and of latents below `latents`."""
    for part in range(PARTS):
        images, latents = root / "shards" / f"p{part:02d}", root / "latents" / f"p{part:02d}"
        facts: dict[str, dict[str, Any]] = {"images": {}, "latents": {}}
        for split in SPLITS:
            for folder in (images, latents):
                (folder / split).mkdir(parents=True)
            counts: dict[str, int] = {}
            with (
                closing(IndexWriter(images / split, IMAGES)) as index,
                closing(IndexWriter(latents / split, LATENTS)) as other,
            ):
                shards = []
                for shard in range(shards_of(part, split)):
                    rows = [row(part, split, shard * SHARD + at) for at in range(SHARD)]
                    index.add(rows)
                    other.add(rows)
                    for each in rows:
                        counts[each["label"]] = counts.get(each["label"], 0) + 1
                    hole(images / split / f"{shard:05d}.tar", b"", SIZE * SHARD)
                    hole(latents / split / f"{shard:05d}.safetensors", latent_header(), 2 * SHARD * 2 * 4096)
                    entry = {"name": f"{shard:05d}", "images": SHARD, "sha256": sha256_bytes(b"")}
                    shards.append({**entry, "bytes": SIZE * SHARD})
                total = {"images": len(shards) * SHARD, "shards": shards}
                facts["images"][split] = {**total, "unlabelled": 0, "labels": counts, "index_sha256": index.close()}
                facts["latents"][split] = {**total, "index_sha256": other.close()}
        spec = ImageSpec(256, "RGB", "png")
        write_manifest(
            images, KIND, part=images.name, image=spec.metadata(), mirror=True, in_place=False, splits=facts["images"]
        )
        write_manifest(
            latents,
            "latents",
            part=latents.name,
            tokenizer="",
            shards="",
            latent={"shape": list(LATENT), "dtype": "bfloat16"},
            mirror=False,
            splits=facts["latents"],
            statistics={"count": 1, "sum": [0.0] * 4, "sum_of_squares": [1.0] * 4},
        )


def latent_header() -> bytes:
    """Return the header of a shard of latents in bfloat16."""
    size = SHARD * 4096 * 2
    header = {
        name: {"dtype": "BF16", "shape": [SHARD, *LATENT], "data_offsets": [at * size, (at + 1) * size]}
        for at, name in enumerate(("mean", "logvar"))
    }
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text


def hole(path: Path, head: bytes, size: int) -> None:
    """Write a file that takes no room but for its head."""
    with path.open("wb") as file:
        file.write(head)
        file.truncate(len(head) + size)


def measure(root: Path) -> None:
    """Print what each thing takes, and the most memory that the process ever had."""
    parts = [f"p{part:02d}" for part in range(PARTS)]
    base = peak()
    print(f"| what | s | peak, MB |\n|---|---|---|\n| the program with its libraries | | {base:,.0f} |")

    def step(name: str, act: Callable[[], Any]) -> Any:
        began = time.perf_counter()
        result = act()
        print(f"| {name} | {time.perf_counter() - began:.2f} | {peak():,.0f} |", flush=True)
        return result

    readers = step(
        "open the images: three splits of 16 parts",
        lambda: {split: ImageShards.open_parts(parts, split, root / "shards") for split in SPLITS},
    )
    train = readers["train"]
    total = sum(map(len, readers.values()))
    latents = step("open the latents' train split", lambda: LatentShards.open_parts(parts, "train", root / "latents"))
    assert len(latents) == len(train)

    def shuffled(ordered: Callable[[np.ndarray], np.ndarray]) -> int:
        seen = np.zeros(len(train), dtype=bool)
        for at in range(0, len(train), 64 * BATCH):  # as the loader asks: 64 batches at a time
            seen[ordered(np.arange(at, min(at + 64 * BATCH, len(train))))] = True
        return int(seen.sum())

    streaming = StreamingOrder([shard.images for shard in train.shards])
    assert step("shuffle an epoch", lambda: shuffled(lambda at: order(0, len(train), at))) == len(train)
    assert step("the same, streaming order", lambda: shuffled(lambda at: streaming.order(0, at))) == len(train)
    names = tuple(f"class {number:03d}" for number in range(CLASSES))
    numbers = {name: at for at, name in enumerate(names)}
    catalog = Catalog(names, {}, ImageSpec(256, "RGB", "png"), {}, {}, "", None, numbers)
    numbers = step("numbers of all labels", lambda: label_numbers(train.label_column, catalog))
    assert numbers.max() == CLASSES - 1
    counts = step(
        f"the split of {total:,} keys",
        lambda: [split_of(key, SHARES, 0) for reader in readers.values() for key in reader.keys],
    )
    assert len(counts) == total
    del counts
    manifests = {part: json.loads((root / "shards" / part / "manifest.json").read_text()) for part in parts}
    assert step("equal images", lambda: find_duplicates(manifests, root / "shards"))["images"] == 0
    assert step("keys of two parts", lambda: find_shared_keys(manifests, root / "shards"))["keys"] == 0


def peak() -> float:
    """Return the most memory that this process ever had, MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000


def main() -> None:
    """Write, then measure in a fresh process."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--folder", type=Path, help="keep what is written here, and use it again")
    options.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    chosen = options.parse_args()
    if chosen.measure:
        measure(chosen.measure)
        return
    with tempfile.TemporaryDirectory() as temporary:
        root = chosen.folder or Path(temporary)
        if not (root / "shards").exists():
            began = time.perf_counter()
            write(root)
            print(f"written in {time.perf_counter() - began:.0f} s", file=sys.stderr)
        subprocess.run([sys.executable, __file__, "--measure", str(root)], check=True)


if __name__ == "__main__":
    main()
