"""Read the handwritten digits of scikit-learn: 1,797 images of 8x8 pixels and 16 grey levels.

E. Alpaydin and C. Kaynak, "Optical recognition of handwritten digits", UCI Machine Learning Repository, 1998 (the test
set: 13 writers). No download: they are in the package.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from darkroom.data.sample import Entry, Raw
from darkroom.params.parts import Digits as Settings

WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
_LEVELS = 16


class Digits:
    """Samples `digits-0000` to `digits-1796`, grey 8x8 images, labels "0" to "9"."""

    def __init__(self, settings: Settings, path: Path | None = None) -> None:
        from sklearn.datasets import load_digits

        self._caption = settings.caption
        self._images, self._labels = load_digits(return_X_y=True)

    def size(self) -> int:
        """Return 1797."""
        return len(self._labels)

    def entries(self, start: int, stop: int | None) -> Iterator[Entry]:
        """Yield the digits `start` to `stop` (not included)."""
        for number in range(start, self.size() if stop is None else stop):
            yield Entry(f"digits-{number:04d}", f"digit {number}", number)

    def read(self, entry: Entry) -> Raw:
        """Return a digit: grey, 0 to 255, value = round(level * 255 / 16)."""
        levels = self._images[entry.payload]
        grey = np.rint(levels.reshape(8, 8) * (255 / _LEVELS)).astype(np.uint8)
        label = int(self._labels[entry.payload])
        caption = self._caption.format(word=WORDS[label], label=label)
        return Raw(Image.fromarray(grey), str(label), caption, identity=grey.tobytes())

    def metadata(self) -> dict[str, Any]:
        """Return no metadata: there is only one version of this data set."""
        return {}
