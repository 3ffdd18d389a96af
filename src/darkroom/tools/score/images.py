"""Read the images to score, from a folder of files or tars, all of one size."""

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from darkroom.data.damage import DamageError
from darkroom.data.decoding import FORMATS, open_image
from darkroom.data.draw import drawn
from darkroom.data.images import ImageSpec, to_array
from darkroom.data.preparing import Preparation, prepare
from darkroom.data.tars import DamagedTarError, members
from darkroom.errors import DarkroomError

Pixels = NDArray[np.uint8]

ENDINGS = frozenset(ending for kind in FORMATS.values() for ending in kind.extensions)
_MAX_PIXELS = 100_000_000  # of an image: 10,000 x 10,000
_MANY = 20  # image files next to tars from which they are a set of their own
CHANNELS = {1: "grey", 3: "colour", 4: "transparent"}


def size_text(shape: Sequence[int]) -> str:
    """Return a shape (C, H, W) for people."""
    channels, height, width = shape
    return f"{height} x {width} pixels, {CHANNELS[channels]}"


class Images:
    """A set of images of one shape, in a fixed order.

    Args:
        shape: (C, H, W), C of 1, 3 or 4.
        count: number of images.
        name: returns the name of an image for messages, by its number.
        read: yields images, uint8 (C, H, W), by ascending numbers; raises DarkroomError if one cannot be used.
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        count: int,
        name: Callable[[int], str],
        read: Callable[[Sequence[int]], Iterator[Pixels]],
    ) -> None:
        self.shape, self._rows, self._name, self._read = shape, list(range(count)), name, read

    def __len__(self) -> int:
        return len(self._rows)

    def draw(self, count: int) -> None:
        """Keep at most `count` images, by a seeded draw, in their order."""
        if count < len(self):
            self._rows = sorted(drawn(len(self), count))

    def name(self, row: int) -> str:
        """Return the name of image `row` for messages."""
        return self._name(self._rows[row])

    def batches(self, size: int, rows: Sequence[int] | None = None) -> Iterator[Pixels]:
        """Yield images, uint8 (n, C, H, W), n at most `size`: all, or those of ascending `rows`.

        Raises:
            DarkroomError: an image cannot be read, or differs in shape from the first; the message names the file.
        """
        pixels = self._read(self._rows if rows is None else [self._rows[row] for row in rows])
        while group := list(islice(pixels, size)):
            yield np.stack(group)


class Entry(NamedTuple):
    """An image: its name for messages, its file, and its place in the file; a size of None: all of the file."""

    name: str
    path: Path
    offset: int = 0
    size: int | None = None

    def read(self) -> bytes:
        """Return its bytes."""
        with self.path.open("rb") as file:
            file.seek(self.offset)
            return file.read(self.size)


def decode(entry: Entry, size: int | None = None) -> Pixels:
    """Return an image, uint8 (C, H, W): C is 1 for grey, 4 for transparent ones, else 3; `size`: see `of_entries`.

    Raises:
        DarkroomError: it cannot be read, is damaged, or has more than 8 bits a channel; names the file.
    """
    try:
        image = open_image(entry.read(), _MAX_PIXELS)
        if size is not None:
            return prepared(image, size)
    except OSError as error:
        raise DarkroomError(f"{entry.name} cannot be read: {error.strerror}.") from error
    except DamageError as error:
        raise DarkroomError(f"{entry.name} cannot be read as an image: {error}.") from error
    if image.mode.startswith(("I", "F")):
        raise DarkroomError(
            f"{entry.name} has more than 8 bits a channel ({image.mode}): convert it to 8 bits, or use --size."
        )
    clear = image.mode in ("RGBA", "LA", "PA", "RGBa", "La") or "transparency" in image.info
    mode = "RGBA" if clear else "L" if image.mode in ("L", "1") else "RGB"
    return to_array(image.convert(mode))


def prepared(image: Image.Image, size: int) -> Pixels:
    """Return the middle square of an image at `size` pixels, RGB, uint8 (3, size, size), as Darkroom's ingest makes it.

    The image is upright, in sRGB, resized by bicubic with antialiasing; transparent pixels are white.
    """
    preparation = Preparation(ImageSpec(size, "RGB", "png"), "center", "bicubic", 0, _MAX_PIXELS, 1, 95)
    return to_array(prepare(image, preparation, ""))


def of_entries(entries: Sequence[Entry], size: int | None = None) -> Images:
    """Return the images of `entries`, at least one, in files or in tars.

    With `size`, all are converted to RGB of that side in pixels; otherwise all must have the shape of the first.
    """
    shape = decode(entries[0]).shape if size is None else (3, size, size)

    def read(numbers: Sequence[int]) -> Iterator[Pixels]:
        for entry in (entries[number] for number in numbers):
            pixels = decode(entry, size)
            if pixels.shape != shape:
                raise DarkroomError(
                    f"{entry.name} has {size_text(pixels.shape)}, but {entries[0].name} has {size_text(shape)}: "
                    "all images of a set must have the same size and channels. Use --size N to crop and resize them to "
                    "N x N pixels in RGB, or convert them."
                )
            yield pixels

    return Images(shape, len(entries), lambda number: entries[number].name, read)


def in_folder(folder: Path, size: int | None = None) -> Images:
    """Return the images below a folder, sorted by path, or those in its tars; for `size` see `of_entries`.

    Next to tars, a few pictures are ignored, such as the grid next to Darkroom's samples.

    Raises:
        DarkroomError: there is no image, there are tars next to many image files, or a tar is damaged or hostile.
    """

    def hidden(path: Path) -> bool:
        return any(part.startswith(".") for part in path.relative_to(folder).parts)

    paths = sorted(path for path in folder.rglob("*") if path.is_file() and not hidden(path))
    pictures = [Entry(str(path), path) for path in paths if path.suffix.lower()[1:] in ENDINGS]
    tars = [path for path in paths if path.suffix == ".tar"]
    entries = [entry for path in tars for entry in in_tar(path)] or pictures
    if entries is not pictures and len(pictures) >= _MANY:
        raise DarkroomError(
            f"{folder} has both tars, such as {tars[0]}, and {len(pictures)} image files, such as {pictures[0].name}: "
            "choose one tar, or remove either kind."
        )
    if not entries:
        raise DarkroomError(f"{folder} has no images: no file ends in {', '.join(sorted(ENDINGS))} or tar.")
    return of_entries(entries, size)


def in_tar(path: Path) -> list[Entry]:
    """Return the images in a tar, such as a WebDataset shard, in its order.

    Raises:
        DarkroomError: it is damaged, compressed or hostile.
    """
    try:
        return [
            Entry(f"{path}, {member.name}", path, member.offset, member.size)
            for member in members(path, str(path))
            if Path(member.name).suffix.lower()[1:] in ENDINGS
        ]
    except DamagedTarError as error:
        raise DarkroomError(f"{path} is damaged or compressed: {error}.") from error
    except OSError as error:
        raise DarkroomError(f"{path} cannot be read: {error.strerror}.") from error
