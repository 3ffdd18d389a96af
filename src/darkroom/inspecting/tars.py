"""Goes through a tar from its first byte to its last, past what is damaged: the library stops there in silence."""

import bz2
import gzip
import hashlib
import lzma
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

_BLOCK = tarfile.BLOCKSIZE
_EMPTY = bytes(_BLOCK)
_CHUNK = 1 << 20
_PACKED: dict[bytes, Any] = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ\x00": lzma.open}
_WITHOUT_DATA = {tarfile.LNKTYPE, tarfile.SYMTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE}


@dataclass(frozen=True)
class Member:
    """A member: its name, whether it is a plain file, where its data begin, how long they should be, and they."""

    name: str
    plain: bool
    offset: int
    size: int
    data: bytes


@dataclass(frozen=True)
class Gap:
    """A place where a header should be and none is."""

    offset: int
    what: str


class Stream(Protocol):
    """What can be read from its beginning to its end."""

    def read(self, count: int = -1, /) -> bytes:
        """Return so many bytes, fewer at the end; all where `count` is -1."""
        ...


class Hashed:
    """A stream that is hashed and counted while it is read, packed or not."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._hash = hashlib.sha256()
        self._ahead = b""
        self.bytes = 0

    @property
    def sha256(self) -> str:
        """Of what was read."""
        return self._hash.hexdigest()

    def read(self, count: int = -1, /) -> bytes:
        """Return so many bytes, fewer at the end."""
        cut = len(self._ahead) if count < 0 else count
        ahead, self._ahead = self._ahead[:cut], self._ahead[cut:]
        data = ahead + self._stream.read(count if count < 0 else count - len(ahead))
        self._hash.update(data)
        self.bytes += len(data)
        return data

    def unpacked(self) -> Stream:
        """Return the stream as it was before it was packed by gzip, bzip2 or xz, as its first bytes say."""
        self._ahead = self._stream.read(6)
        for magic, opener in _PACKED.items():
            if self._ahead.startswith(magic):
                return opener(self)
        return self

    def finish(self) -> None:
        """Read what is left."""
        while self.read(_CHUNK):
            pass


def walk(stream: Stream) -> Iterator[Member | Gap]:
    """Yield what is in a tar, in one pass.

    After a damaged header it goes on with the next block that is a header by its checksum.
    """
    at, lost, ended = 0, False, False
    while block := stream.read(_BLOCK):
        if block == _EMPTY:
            ended = True
            at += _BLOCK
            continue
        try:
            info = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
        except (tarfile.HeaderError, ValueError) as error:
            if not lost:
                yield Gap(at, str(error))
            lost, ended = True, False
            at += len(block)
            continue
        if ended:
            yield Gap(at - _BLOCK, "empty header")
        lost = ended = False
        size = 0 if info.type in _WITHOUT_DATA else max(0, info.size)
        padded = -(-size // _BLOCK) * _BLOCK
        yield Member(info.name, info.isreg(), at + _BLOCK, info.size, stream.read(padded)[:size])
        at += _BLOCK + padded
    if not ended:
        yield Gap(at, "it is cut off")
