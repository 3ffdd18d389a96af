"""Real shards for tests, as other programs write them."""

import io
import json
import random
import tarfile
from hashlib import sha256
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from darkroom.data.images import ImageSpec, to_pil
from darkroom.params.parts import Webdataset as Settings
from data.making import pixels

FAILED = {3: ("failed_to_download", "HTTP Error 404: Not Found"), 7: ("failed_to_resize", "Image decoding error")}


def picture(number: int, format: str = "JPEG", size: int = 9) -> bytes:
    """Return the file of an image that is not square, other for each number."""
    image = to_pil(pixels(number, ImageSpec(size, "RGB", "png"))).resize((size + 3, size))
    buffer = io.BytesIO()
    image.save(buffer, format)
    return buffer.getvalue()


def tar(
    path: Path, members: dict[str, bytes] | list[tuple[str, bytes | str]], format: int = tarfile.GNU_FORMAT
) -> Path:
    """Write a tar of some members; a member that is given as a name is a hard link to that."""
    with tarfile.open(path, "w", format=format) as file:
        for name, data in members.items() if isinstance(members, dict) else members:
            info = tarfile.TarInfo(name)
            if isinstance(data, str):
                info.type, info.linkname, info.size = tarfile.LNKTYPE, data, 700  # a size that no data follow
            else:
                info.size = len(data)
            file.addfile(info, io.BytesIO(data) if isinstance(data, bytes) else None)
    return path


def img2dataset(folder: Path, shards: int = 2, rows: int = 10) -> list[str]:
    """Write the folder that img2dataset leaves, and return the keys that are in the tars.

    The rows FAILED of each shard could not be downloaded; the others come in the order of completion, any order.
    """
    folder.mkdir(parents=True, exist_ok=True)
    kept = []
    for shard in range(shards):
        table: list[dict[str, Any]] = []
        members: dict[str, bytes] = {}
        for row in random.Random(shard).sample(range(rows), rows):
            key = f"{shard:05d}{row:04d}"
            status, error = FAILED.get(row, ("success", None))
            data = None if error else picture(100 * shard + row)
            metadata = {
                "url": f"https://example.org/{key}.jpg",
                "caption": f"picture {row}, größer",
                "key": key,
                "status": status,
                "error_message": error,
                "width": 12 if data else None,
                "height": 9 if data else None,
                "original_width": 24 if data else None,
                "original_height": 18 if data else None,
                "exif": "{}" if data else None,
                "sha256": sha256(data).hexdigest() if data else None,
            }
            table.append(metadata)
            if data is not None:
                kept.append(key)
                members |= {f"{key}.jpg": data, f"{key}.txt": metadata["caption"].encode()}
                members[f"{key}.json"] = json.dumps({**metadata, "label": row % 3}, indent=4).encode()
        tar(folder / f"{shard:05d}.tar", members)
        pq.write_table(pa.Table.from_pylist(table), folder / f"{shard:05d}.parquet")
        stats = {"count": rows, "successes": rows - len(FAILED), "failed_to_download": 1, "failed_to_resize": 1}
        (folder / f"{shard:05d}_stats.json").write_text(json.dumps({**stats, "duration": 1.5, "status_dict": {}}))
    return sorted(kept)


def settings(**changes: Any) -> Settings:
    values: dict[str, Any] = {
        "url": None,
        "image": ["jpg", "jpeg", "png", "webp"],
        "label": "json:label",
        "caption": "txt",
        "classes": None,
        "shard_in_key": False,
        "repack": False,
        "damaged_shard": "stop",
        "mirror": False,
    }
    return Settings(**{**values, **changes})
