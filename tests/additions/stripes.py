"""A source as somebody would add it: one file, its settings, and its section of params.yaml."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from darkroom.data.sample import Entry, Raw
from darkroom.params.parts import Stripes as Settings


class Stripes:
    """Grey images of 16x16 pixels with vertical or horizontal stripes."""

    def __init__(self, settings: Settings, path: Path | None = None) -> None:
        self._images = settings.images

    def size(self) -> int:
        """Return the number of images."""
        return self._images

    def entries(self, start: int, stop: int | None) -> Iterator[Entry]:
        """Yield the images `start` to `stop` (not included)."""
        for number in range(start, self._images if stop is None else stop):
            yield Entry(f"stripes-{number:04d}", f"image {number}", number)

    def read(self, entry: Entry) -> Raw:
        """Return an image: its number is its darkness, even numbers are vertical."""
        pixels = np.full((16, 16), 255, np.uint8)
        (pixels if entry.payload % 2 else pixels.T)[::2] = entry.payload % 256
        return Raw(Image.fromarray(pixels), ("vertical", "horizontal")[entry.payload % 2], identity=pixels.tobytes())

    def metadata(self) -> dict[str, Any]:
        """Return no metadata."""
        return {}
