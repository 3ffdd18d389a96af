"""Rows of noise with the shapes and types of the real ones: what a plan measures a training on."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from darkroom.data.latent_file import FORMS
from darkroom.random import generator
from darkroom.training.recipe import Rows

_END = 49407  # the token at which CLIP's texts end


def _tokens(source: np.random.Generator, count: int, context: int) -> NDArray[np.int64]:
    tokens = source.integers(1, _END, (count, context))
    tokens[:, -1] = _END
    return tokens


class _Rows:
    """So many rows, of which any reads as the same noise."""

    def __init__(self, size: int) -> None:
        self._size = size

    def __len__(self) -> int:
        return self._size

    def keys(self, rows: Sequence[int]) -> list[str]:
        """Return a name for each row."""
        return [f"noise-{row}" for row in rows]


class Kept:
    """The first rows of others, read once: reading them again takes no time."""

    def __init__(self, rows: Rows, most: int) -> None:
        self._rows, self._size = rows, min(most, len(rows))
        self._read: dict[int, Mapping[str, Any]] = {}

    def __len__(self) -> int:
        return self._size

    def keys(self, rows: Sequence[int]) -> list[str]:
        """Return a name for each row."""
        return self._rows.keys(rows)

    def __getitems__(self, rows: Sequence[int], positions: NDArray[np.int64] | None = None) -> Mapping[str, Any]:
        """Return as many of the first rows, not augmented."""
        size = len(rows)
        if size not in self._read:
            self._read[size] = self._rows.__getitems__([row % self._size for row in range(size)])
        return self._read[size]


class Bare(_Rows):
    """Rows with nothing in them, for `NoiseTold`."""

    def __getitems__(self, rows: Sequence[int], positions: NDArray[np.int64] | None = None) -> dict[str, Any]:
        """Return nothing."""
        return {}


class NoiseImages(_Rows):
    """`images` uint8 (N, C, H, W), uniform; `labels` int64 (N,)."""

    def __init__(self, size: int, shape: tuple[int, int, int], classes: int) -> None:
        super().__init__(size)
        self._shape, self._classes = shape, classes
        self.classes = tuple(f"class {number}" for number in range(classes))

    def __getitems__(self, rows: Sequence[int], positions: NDArray[np.int64] | None = None) -> dict[str, Any]:
        """Return noise for some rows."""
        images = generator(0, "plan/images").integers(0, 256, (len(rows), *self._shape), dtype=np.uint8)
        return {"images": images, "labels": np.arange(len(rows)) % self._classes}


class NoiseCaptioned(NoiseImages):
    """The same with `tokens` int64 (N, L), random words and an end, and `captions` int64 (N,), so many that differ."""

    def __init__(self, size: int, shape: tuple[int, int, int], captions: int, context: int) -> None:
        super().__init__(size, shape, 1)
        self._captions, self._context = captions, context

    def __getitems__(self, rows: Sequence[int], positions: NDArray[np.int64] | None = None) -> dict[str, Any]:
        """Return noise for some rows."""
        source = generator(0, "plan/captions")
        tokens = _tokens(source, len(rows), self._context)
        images = super().__getitems__(rows)["images"]
        return {"images": images, "tokens": tokens, "captions": source.integers(0, self._captions, len(rows))}


class NoiseTold:
    """Rows with what CLIP says of each: float16 noise of some shapes under their names, `tokens` as above."""

    def __init__(self, rows: Rows, shapes: Mapping[str, tuple[int, ...]]) -> None:
        self._rows, self._shapes = rows, shapes

    def __len__(self) -> int:
        return len(self._rows)

    def keys(self, rows: Sequence[int]) -> list[str]:
        """Return a name for each row."""
        return self._rows.keys(rows)

    def __getitems__(self, rows: Sequence[int], positions: NDArray[np.int64] | None = None) -> dict[str, Any]:
        """Return noise for some rows."""
        source = generator(0, "plan/told")
        told = {
            name: _tokens(source, len(rows), shape[0])
            if name == "tokens"
            else source.standard_normal((len(rows), *shape), dtype=np.float32).astype(np.float16)
            for name, shape in self._shapes.items()
        }
        return {**self._rows.__getitems__(rows), **told}


class NoiseLatents(_Rows):
    """Stored latents in one of their forms, and `labels` int64 (N,).

    `mean` and `logvar` float32 (N, C, h, w), standard normal, or `mean` alone, or `codes` int32 (N, h, w), uniform.
    """

    def __init__(
        self, size: int, shape: tuple[int, int, int], classes: int, form: str = "distribution", codes: int = 0
    ) -> None:
        super().__init__(size)
        self._shape, self._classes, self._form, self._codes = shape, classes, form, codes

    def __getitems__(self, rows: Sequence[int], positions: NDArray[np.int64] | None = None) -> dict[str, Any]:
        """Return noise for some rows."""
        source = generator(0, "plan/latents")
        labels = np.arange(len(rows)) % self._classes
        if self._form == "codes":
            codes = source.integers(0, self._codes, (len(rows), *self._shape[1:]), dtype=np.int32)
            return {"codes": codes, "labels": labels}
        tensors = {
            name: source.standard_normal((len(rows), *self._shape), dtype=np.float32) for name in FORMS[self._form]
        }
        return {**tensors, "labels": labels}
