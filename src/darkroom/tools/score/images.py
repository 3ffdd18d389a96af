"""The images that a person names: a folder of files, tars, or an array in an .npz, all of one size."""

# No effect on any output: reads what a command names

import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from darkroom.data.damage import DamageError
from darkroom.data.decoding import open_image
from darkroom.data.draw import drawn
from darkroom.data.formats import FORMATS
from darkroom.data.tars import DamagedTarError, members
from darkroom.errors import DarkroomError

Pixels = NDArray[np.uint8]

ENDINGS = frozenset(ending for kind in FORMATS.values() for ending in kind.extensions)
_MAX_PIXELS = 100_000_000  # of an image: 10,000 x 10,000
_CHANNELS = {1: "grey", 3: "colour", 4: "transparent"}


class Images(Protocol):
    """A set of images of one shape."""

    @property
    def shape(self) -> tuple[int, int, int]:
        """(C, H, W), C of 1, 3 or 4."""
        ...

    def __len__(self) -> int:
        """Return the number of images."""
        ...

    def name(self, row: int) -> str:
        """Return what image `row` is called in messages."""
        ...

    def batches(self, size: int, rows: Sequence[int] | None = None) -> Iterator[Pixels]:
        """Yield images, uint8 (n, C, H, W), n at most `size`: all, or those of ascending `rows`."""
        ...


class Entry(NamedTuple):
    """An image file: its name for messages, the file that it lies in, and where; a size of None: all of the file."""

    name: str
    path: Path
    offset: int = 0
    size: int | None = None

    def read(self) -> bytes:
        """Return its bytes."""
        with self.path.open("rb") as file:
            file.seek(self.offset)
            return file.read(self.size)


def decode(entry: Entry) -> Pixels:
    """Return an image, uint8 (C, H, W): C is 1 of grey, 4 of transparent ones, 3 of all others.

    Raises:
        DarkroomError: it cannot be read, is damaged, or has more than 8 bits a channel; names the file.
    """
    try:
        image = open_image(entry.read(), _MAX_PIXELS)
    except OSError as error:
        raise DarkroomError(f"{entry.name} cannot be read: {error.strerror}.") from error
    except DamageError as error:
        raise DarkroomError(f"{entry.name} cannot be read as an image: {error}.") from error
    if image.mode.startswith(("I", "F")):
        raise DarkroomError(f"{entry.name} has more than 8 bits a channel ({image.mode}): convert it to 8 bits.")
    clear = image.mode in ("RGBA", "LA", "PA", "RGBa", "La") or "transparency" in image.info
    mode = "RGBA" if clear else "L" if image.mode in ("L", "1") else "RGB"
    pixels = np.asarray(image if image.mode == mode else image.convert(mode), dtype=np.uint8)
    return np.ascontiguousarray(pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1))


class Files:
    """Images in files or in tars, in the order of `entries`; the first one says which shape all have."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        self._entries = entries
        channels, height, width = decode(entries[0]).shape
        self.shape = channels, height, width

    def __len__(self) -> int:
        return len(self._entries)

    def name(self, row: int) -> str:
        """Return the name of a file."""
        return self._entries[row].name

    def batches(self, size: int, rows: Sequence[int] | None = None) -> Iterator[Pixels]:
        """Yield images: see `Images`.

        Raises:
            DarkroomError: one cannot be read, or has another shape than the first; names the file.
        """
        chosen = range(len(self)) if rows is None else rows
        for first in range(0, len(chosen), size):
            yield np.stack([self._one(row) for row in chosen[first : first + size]])

    def _one(self, row: int) -> Pixels:
        entry = self._entries[row]
        pixels = decode(entry)
        if pixels.shape != self.shape:
            one, other = pixels.shape, self.shape
            what = " x ".join(map(str, one[1:])), " x ".join(map(str, other[1:]))
            if one[1:] == other[1:]:
                what = _CHANNELS[one[0]], _CHANNELS[other[0]]
            raise DarkroomError(
                f"{entry.name} is {what[0]} and {self.name(0)} is {what[1]}: a set is of one size and of one kind of "
                "colour, so crop or convert them first."
            )
        return pixels


class Stored:
    """Images in an .npz, `arr_0`, uint8 (N, H, W, C), read piece by piece: the file may be larger than the memory."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with self._open() as archive, archive.open("arr_0.npy") as file:
            version = np.lib.format.read_magic(file)
            read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            shape, fortran, dtype = read(file)
        if dtype != np.uint8 or len(shape) != 4 or shape[3] not in _CHANNELS or fortran:
            raise DarkroomError(
                f"{path} holds `arr_0` of {dtype} {shape}, and images are uint8 (N, H, W, C) with C of 1, 3 or 4."
            )
        self._count, self.shape = shape[0], (shape[3], shape[1], shape[2])

    def _open(self) -> zipfile.ZipFile:
        return zipfile.ZipFile(self._path)

    def __len__(self) -> int:
        return self._count

    def name(self, row: int) -> str:
        """Return the file and the row."""
        return f"{self._path}, image {row}"

    def batches(self, size: int, rows: Sequence[int] | None = None) -> Iterator[Pixels]:
        """Yield images: see `Images`.

        Raises:
            DarkroomError: the file ends too early, or is damaged.
        """
        channels, height, width = self.shape
        wanted = None if rows is None else set(rows)
        held: list[Pixels] = []
        try:
            with self._open() as archive, archive.open("arr_0.npy") as file:
                version = np.lib.format.read_magic(file)
                read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
                read(file)
                for row in range(self._count):
                    data = file.read(channels * height * width)
                    if len(data) < channels * height * width:
                        raise EOFError(f"it ends within image {row}")
                    if wanted is None or row in wanted:
                        pixels = np.frombuffer(data, np.uint8).reshape(height, width, channels)
                        held.append(pixels.transpose(2, 0, 1))
                    if len(held) == size:
                        yield np.stack(held)
                        held = []
        except (zipfile.BadZipFile, EOFError, OSError, ValueError) as error:
            raise DarkroomError(f"{self._path} is damaged ({error}): fetch it again.") from error
        if held:
            yield np.stack(held)


class Drawn:
    """Some images of a set, by a seeded draw, in the order of the set."""

    def __init__(self, images: Images, count: int) -> None:
        self._images = images
        self._rows = sorted(drawn(len(images), count))
        self.shape = images.shape

    def __len__(self) -> int:
        return len(self._rows)

    def name(self, row: int) -> str:
        """Return what the set calls it."""
        return self._images.name(self._rows[row])

    def batches(self, size: int, rows: Sequence[int] | None = None) -> Iterator[Pixels]:
        """Yield images: see `Images`."""
        chosen = self._rows if rows is None else [self._rows[row] for row in rows]
        yield from self._images.batches(size, chosen)


def in_folder(folder: Path) -> Files:
    """Return the images below a folder, by their paths, or, where there are none, those in the tars below it.

    Raises:
        DarkroomError: there is no image, or a tar is damaged or hostile.
    """
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and not _hidden(path, folder))
    entries = [Entry(str(path), path) for path in paths if path.suffix.lower()[1:] in ENDINGS]
    for path in paths if not entries else ():
        if path.suffix == ".tar":
            entries += in_tar(path)
    if not entries:
        raise DarkroomError(f"{folder} holds no image: none of its files ends as {', '.join(sorted(ENDINGS))}, or tar.")
    return Files(entries)


def _hidden(path: Path, folder: Path) -> bool:
    return any(part.startswith(".") for part in path.relative_to(folder).parts)


def in_tar(path: Path) -> list[Entry]:
    """Return the images in a tar, a shard as WebDataset's, in its order.

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
        raise DarkroomError(f"{path} is damaged, or compressed: {error}.") from error
    except OSError as error:
        raise DarkroomError(f"{path} cannot be read: {error.strerror}.") from error
