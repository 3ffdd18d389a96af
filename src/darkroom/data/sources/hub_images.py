"""The images in the rows of a data set of the Hub: bytes in the row, or the address of a file beside it."""

import os
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from darkroom.data.damage import DamageError, Reason
from darkroom.errors import DarkroomError


def content(value: Any) -> tuple[bytes | str | None, str | None]:
    """Return the bytes or the address of an image from the value of its column, and its file name."""
    if value is None:
        return None, None
    path = value.get("path")
    data = value.get("bytes")
    return (path if data is None else data), path


@dataclass(frozen=True)
class Files:
    """The files of one data set. Other files are refused: a table could name any file of this machine as an image.

    name: the name of the data set, for messages.
    root: the prefix of the addresses of its files: an absolute folder, or hf://datasets/NAME@COMMIT.
    """

    name: str
    root: str

    @property
    def _local(self) -> bool:
        return not self.root.startswith("hf://")

    def short(self, address: str) -> str:
        """Return an address relative to the data set, or its file name where it is outside of the data set."""
        inner, _, archive = address.partition("::")
        own = self._own(archive or inner)
        if own is None:
            return PurePosixPath(inner).name
        return f"{own}: {inner.removeprefix('zip://')}" if archive else own

    def _own(self, address: str) -> str | None:
        path = os.path.normpath(Path(address).absolute()) if self._local else address
        start = self.root.rstrip("/") + "/"
        return path[len(start) :] if path.startswith(start) and ".." not in path.split("/") else None

    def read(self, address: str) -> bytes:
        """Return the content of a file, `zip://MEMBER::ARCHIVE` for one in an archive.

        Raises:
            DamageError: the file cannot be read, or is not a file of the data set.
            DarkroomError: the Hub cannot be reached.
        """
        import fsspec

        inner, _, archive = address.partition("::")
        if "::" in archive or (archive and not inner.startswith("zip://")) or self._own(archive or inner) is None:
            raise DamageError(Reason.UNREADABLE, "the row has no bytes, and its path is outside of the data set")
        try:
            with fsspec.open(address, "rb") as file:
                return file.read()
        except FileNotFoundError as error:
            raise DamageError(Reason.MISSING, "the row names a file that is not there") from error
        except Exception as error:  # errors of zipfile or the system; on the Hub also of the network
            if not self._local:
                raise DarkroomError(f"{address} cannot be read: {type(error).__name__}: {error}") from error
            raise DamageError(Reason.UNREADABLE, type(error).__name__) from error
