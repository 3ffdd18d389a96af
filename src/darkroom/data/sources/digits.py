"""The real handwritten digits that scikit-learn carries: 1,797 images of 8x8 pixels and 16 grey levels.

E. Alpaydin and C. Kaynak, "Optical recognition of handwritten digits", UCI Machine Learning Repository, 1998 (the test
set: 13 writers). No download: they are in the package.
"""

from collections.abc import Iterator

import numpy as np
from PIL import Image

from darkroom.data.sample import Sample

WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
_LEVELS = 16


class Digits:
    """Samples `digits-0000` to `digits-1796`, grey 8x8 images, labels "0" to "9".

    caption: a text in which {word} (zero to nine) and {label} (0 to 9) are replaced.
    """

    def __init__(self, caption: str) -> None:
        from sklearn.datasets import load_digits

        self._caption = caption
        self._images, self._labels = load_digits(return_X_y=True)

    def size(self) -> int:
        """Return 1797."""
        return len(self._labels)

    def samples(self, start: int, stop: int) -> Iterator[Sample]:
        """Yield the digits `start` to `stop` (not included): grey, 0 to 255, value = round(level * 255 / 16)."""
        for number in range(start, stop):
            grey = np.rint(self._images[number].reshape(8, 8) * (255 / _LEVELS)).astype(np.uint8)
            label = int(self._labels[number])
            yield Sample(
                key=f"digits-{number:04d}",
                image=Image.fromarray(grey),
                label=str(label),
                caption=self._caption.format(word=WORDS[label], label=label),
            )
