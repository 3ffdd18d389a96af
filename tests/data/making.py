"""Small data for the tests of this room."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from darkroom.data.damage import Reason
from darkroom.data.images import ImageSpec, to_pil
from darkroom.data.latent_writer import write_latents
from darkroom.data.parts import Policy, write_part
from darkroom.data.pipeline import outcomes
from darkroom.data.preparing import Preparation
from darkroom.data.reader import ImageShards
from darkroom.data.sample import Entry, Raw, Sample
from darkroom.data.sources import Source
from darkroom.data.splits import SPLITS

SHARES = {"train": 0.6, "val": 0.1, "test": 0.3}
SPEC = ImageSpec(6, "RGB", "png")
LATENT = (2, 3, 3)


def pixels(number: int, spec: ImageSpec = SPEC) -> NDArray[np.uint8]:
    return np.random.default_rng(number).integers(0, 256, spec.shape, dtype=np.uint8)


def samples(start: int, stop: int, spec: ImageSpec = SPEC) -> Iterator[Sample]:
    """Noise images; every fifth without label and caption."""
    for number in range(start, stop):
        label, caption = (None, None) if number % 5 == 4 else (str(number % 12), f"number {number}, größer")
        yield Sample(f"noise-{number:04d}", to_pil(pixels(number, spec)), label, caption)


class Noise:
    """A source of the same images, as arrays in the size asked for."""

    def __init__(self, spec: ImageSpec = SPEC) -> None:
        self.spec = spec

    def size(self) -> int | None:
        return None

    def entries(self, start: int, stop: int | None) -> Iterator[Entry]:
        for number in range(start, stop or 100):
            yield Entry(f"noise-{number:04d}", f"noise {number}", number)

    def read(self, entry: Entry) -> Raw:
        (sample,) = samples(entry.payload, entry.payload + 1, self.spec)
        return Raw(sample.image, sample.label, sample.caption)

    def metadata(self) -> dict:
        return {}


RULES = {
    Reason.TRANSPARENT: "quarantine",
    Reason.ONE_PIXEL: "quarantine",
    Reason.ONE_COLOUR: "keep",
    Reason.DUPLICATE: "quarantine",
    Reason.CAPTION_MISSING: "keep",
    Reason.CAPTION_NOT_UTF8: "repair",
    Reason.LABEL_MISSING: "keep",
    Reason.LABEL_OUT_OF_RANGE: "quarantine",
}


def preparation(spec: ImageSpec = SPEC, **changes: Any) -> Preparation:
    values = {"crop": "center", "resample": "box", "seed": 0, "max_pixels": 10**6, "min_size": 1, "quality": 95}
    return Preparation(spec, **{**values, **changes})


def policy(**changes: Any) -> Policy:
    return Policy(**{"rules": RULES, "fractions": SHARES, "split_seed": 0, **changes})


def make_part(
    root: Path,
    part: str,
    start: int = 0,
    stop: int = 40,
    spec: ImageSpec = SPEC,
    mirror: bool = False,
    source: Source | None = None,
    **rules: Any,
) -> Path:
    """Write a part of noise, or of another source, into `root / part`; `rules` are changes of the policy."""
    folder = root / part
    folder.mkdir(parents=True)
    source, how = source or Noise(spec), preparation(spec)
    metadata = {"name": "noise", **source.metadata()}
    found = outcomes(source, source.entries(start, stop), how, processes=1)
    logs = root.parent / "logs"
    write_part(folder, part, found, metadata, how, policy(**rules), shard_size=7, mirror=mirror, logs=logs)
    return folder


def linear_encode(images: NDArray[np.uint8]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Some function of each image alone: (N, 3, 6, 6) to mean and logvar (N, 2, 3, 3)."""
    values = images[:, :2, ::2, ::2].astype(np.float32)
    return values / 100 - 1, values / 255 - 3


def make_latents(
    shards_root: Path,
    root: Path,
    part: str,
    dtype: str = "float32",
    tokenizer: str = "t" * 64,
    encode: Callable = linear_encode,
    shape: tuple[int, int, int] = LATENT,
    shift: int = 0,
) -> dict:
    images = {split: ImageShards.open_parts([part], split, shards_root) for split in SPLITS}
    how = {"dtype": dtype, "tokenizer": tokenizer, "shape": shape, "shift": shift}
    return write_latents(root / part, part, images, encode, **how)


def flip(path: Path, at: int) -> None:
    """Change one bit of one byte."""
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
