"""A small collection for each source, in its real format, of real handwritten digits: for stages and for engines."""

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from PIL import Image

from data.making_tars import tar
from data.sources.torchvision_files import write_mnist

COUNT = 60

Made = tuple[dict[str, Any], dict[str, Any]]  # a part, and what else params.yaml says


def digits() -> tuple[NDArray[np.uint8], list[int]]:
    """Return 60 digits, uint8 (60, 28, 28), and what they are."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    small = (images[:COUNT].reshape(-1, 8, 8) * 15).astype(np.uint8)
    return np.pad(small.repeat(3, axis=1).repeat(3, axis=2), ((0, 0), (2, 2), (2, 2))), labels[:COUNT].tolist()


def files(format: str) -> list[tuple[bytes, int]]:
    """Return the digits as files, and what they are."""
    found = []
    for pixels, label in zip(*digits(), strict=True):
        buffer = io.BytesIO()
        Image.fromarray(pixels).convert("RGB").save(buffer, format)
        found.append((buffer.getvalue(), label))
    return found


def part(source: str, path: Path | None = None, stop: int | None = None, **settings: Any) -> dict[str, Any]:
    """Return an entry of `parts`."""
    where = "data/none" if path is None else str(path)
    return {"source": source, "path": where, "start": 0, "stop": stop, "embeddings": "data/none", "settings": settings}


def make_digits(folder: Path, patch: Any) -> Made:
    return part("digits", stop=COUNT), {}


def make_shapes(folder: Path, patch: Any) -> Made:
    return part("shapes", stop=COUNT, size=32), {}


def make_torchvision(folder: Path, patch: Any) -> Made:
    images, labels = digits()
    write_mnist(folder, images, np.array(labels, np.uint8), patch)
    return part("torchvision", folder, dataset="MNIST", split="train"), {}


def make_eurosat(folder: Path) -> Made:
    """A set of torchvision without checksums, for other processes: files in class folders."""
    for number, (data, label) in enumerate(files("JPEG")):
        path = folder / "eurosat" / "2750" / f"Digit{label}" / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return part("torchvision", folder, dataset="EuroSAT", split=None, download=False), {}


def make_folder(folder: Path, patch: Any) -> Made:
    rows = []
    for number, (data, label) in enumerate(files("JPEG")):
        path = folder / str(label) / f"{number:03d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        rows.append(json.dumps({"file_name": f"{label}/{number:03d}.jpg", "text": f"a {label}"}))
    (folder / "metadata.jsonl").write_text("\n".join(rows))
    return part("folder", folder, caption="metadata", mirror=True), {}


def make_webdataset(folder: Path, patch: Any) -> Made:
    """Shards as img2dataset leaves them, with labels in their JSON: indexed in place."""
    folder.mkdir()
    found = files("JPEG")
    for shard in range(2):
        members, rows = {}, []
        for number in range(shard * COUNT // 2, (shard + 1) * COUNT // 2):
            data, label = found[number]
            key = f"{shard:05d}{number:04d}"
            metadata = {"key": key, "status": "success", "error_message": None, "label": str(label)}
            members |= {
                f"{key}.jpg": data,
                f"{key}.txt": f"a {label}".encode(),
                f"{key}.json": json.dumps(metadata).encode(),
            }
            rows.append(metadata)
        tar(folder / f"{shard:05d}.tar", members)
        pq.write_table(pa.Table.from_pylist(rows), folder / f"{shard:05d}.parquet")
        (folder / f"{shard:05d}_stats.json").write_text(json.dumps({"count": len(rows), "successes": len(rows)}))
    return part("webdataset", folder, label="json:label"), {}


def make_hub(folder: Path, patch: Any) -> Made:
    """A data set as `push_to_hub` leaves it."""
    import datasets

    names = [str(number) for number in range(10)]
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=names)})
    found = files("PNG")
    columns = {"image": [{"bytes": data, "path": None} for data, _ in found], "label": [label for _, label in found]}
    (folder / "data").mkdir(parents=True)
    datasets.disable_progress_bars()
    datasets.Dataset.from_dict(columns, features=features).to_parquet(folder / "data/train-00000-of-00001.parquet")
    return part("hub", folder), {}


MAKERS: dict[str, Callable[[Path, Any], Made]] = {
    "digits": make_digits,
    "shapes": make_shapes,
    "torchvision": make_torchvision,
    "folder": make_folder,
    "webdataset": make_webdataset,
    "hub": make_hub,
}
