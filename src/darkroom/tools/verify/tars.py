"""Reads a tar from its first byte to its last, also after damaged headers, where `tarfile` stops in silence."""

import hashlib
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

_BLOCK = tarfile.BLOCKSIZE
_EMPTY = bytes(_BLOCK)
_WITHOUT_DATA = {tarfile.LNKTYPE, tarfile.SYMTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE}


@dataclass(frozen=True)
class Member:
    """A member: its name, whether it is a plain file, the offset of its data, their expected size, and the data."""

    name: str
    plain: bool
    offset: int
    size: int
    data: bytes


@dataclass(frozen=True)
class Gap:
    """An offset without a valid header where one is expected."""

    offset: int
    what: str


class Hashed:
    """A stream that is hashed and counted while it is read."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._hash = hashlib.sha256()
        self.bytes = 0

    @property
    def sha256(self) -> str:
        """The SHA-256 of the bytes read so far."""
        return self._hash.hexdigest()

    def read(self, count: int) -> bytes:
        """Return `count` bytes, fewer at the end of the stream."""
        data = self._stream.read(count)
        self._hash.update(data)
        self.bytes += len(data)
        return data


def walk(stream: Hashed) -> Iterator[Member | Gap]:
    """Yield the members and gaps of a tar, in one pass over all of its bytes.

    After a damaged header it continues with the next block that has the checksum of a header.
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
