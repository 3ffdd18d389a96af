"""Odd modes, odd names and odd ends of lines: from `darkroom init` to the catalog."""

import json
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from PIL import Image

from darkroom.cli import main
from stages.test_every_source import run as run_stage

CLASSES = ("null", "true", "123", "a: #{b} 'c'")
EACH = 12


def _noise(number: int, mode: str = "RGB") -> Image.Image:
    return Image.frombytes(mode, (24, 16), random.Random(number).randbytes(24 * 16 * len(mode)))


def _animated(path: Path, number: int) -> None:
    _noise(number).save(path, save_all=True, append_images=[_noise(-number), _noise(number)])


def _turned(path: Path, number: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # upright after a quarter turn
    _noise(number).save(path, exif=exif)


WRITERS: dict[str, Callable[[Path, int], None]] = {
    "grey and alpha.png": lambda path, number: _noise(number, "LA").save(path),
    "four inks.jpg": lambda path, number: _noise(number, "CMYK").save(path),
    "three pictures.gif": _animated,
    "#turned: {1}.jpeg": _turned,
}


@pytest.mark.parametrize("table", ["", "\r\n"], ids=["folders", "table of CRLF"])
def test_what_people_have_becomes_a_catalog(clone, quick, tmp_path: Path, table: str) -> None:
    root = tmp_path / "my #1 {pictures}: 50%"
    paths = {}
    for number in range(len(CLASSES) * EACH):
        label, kind = CLASSES[number % len(CLASSES)], list(WRITERS)[number // len(CLASSES) % len(WRITERS)]
        path = f"{'' if table else f'{label}/'}{number} {kind}"
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        WRITERS[kind](root / path, number)
        paths[path] = label
    if table:
        rows = table.join(f'"{path}","{label}"' for path, label in paths.items())
        (root / "metadata.csv").write_bytes(f"file_name,label{table}{rows}".encode())
    assert main(["init", str(root)]) == 0
    run_stage("ingest", "my-1-pictures-50")
    run_stage("catalog")
    manifest = json.loads(Path("data/catalog/manifest.json").read_text())
    assert manifest["classes"] == sorted(CLASSES)
    assert sum(manifest["images"].values()) == len(paths)
    part = Path("data/shards/my-1-pictures-50")
    assert not pq.read_table(part / "quarantine.parquet").num_rows
    indexes = [pq.read_table(path)["original_width"] for path in part.glob("*/index.parquet")]
    widths = Counter(width for index in indexes for width in index.to_pylist())
    assert widths == {24: 3 * EACH, 16: EACH}  # of images that are upright
