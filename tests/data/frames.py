"""Folders of animation frames: units of unequal numbers of frames, RGBA, in folders of classes of unequal sizes."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

SIDE = 16
LEAKING = {"split": "test", "train": 900, "images": 200, "groups": 60.0, "tau": 0.01, "near": 0.81, "setting": "name"}
TWINS = (
    "81% of the held-out images have a near twin in training (5% would be chance), so scores of held-out images partly "
    "measure memory: set `ingest.group: name`"
)


def unit_image(unit: int, frame: int) -> Image.Image:
    """Return a frame of a unit: blocks of its three colours, moved a little; transparent pixels have any colour."""
    own, draw = np.random.default_rng(unit), np.random.default_rng((unit, frame))
    palette = own.integers(0, 256, (3, 3))
    blocks = own.integers(0, 4, (4, 4)).repeat(3, 0).repeat(3, 1)  # 3: transparent
    pixels = draw.integers(0, 256, (SIDE, SIDE, 4), dtype=np.uint8)
    pixels[..., 3] = 0
    down, right = draw.integers(0, SIDE - 12 + 1, 2)
    inner = pixels[down : down + 12, right : right + 12]
    visible = blocks < 3
    inner[visible, :3] = np.clip(palette[blocks[visible]] + draw.integers(-6, 7, 3), 0, 255)
    inner[visible, 3] = 255
    return Image.fromarray(pixels)


def name_of(unit: int) -> str:
    return f"{'abcdefgh'[unit // 8]}{'klmnopqr'[unit % 8]}orc"


def write_frames(root: Path, units: int = 48) -> NDArray[np.int64]:
    """Write frames, of which every third unit has many, and return the unit of each in the order of their paths."""
    paths: dict[str, int] = {}
    for unit in range(units):
        folder = "elves" if unit % 4 else "dwarves"
        for frame in range(14 if unit % 3 == 0 else 4):
            paths[f"{folder}/{name_of(unit)}-{('run', 'hit')[frame % 2]}-{frame + 1}.png"] = unit
            path = root / list(paths)[-1]
            path.parent.mkdir(parents=True, exist_ok=True)
            unit_image(unit, frame).save(path)
    return np.array([paths[path] for path in sorted(paths)])
