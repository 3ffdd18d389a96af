"""Write the output of a stage to terminal and log, and print progress."""

# No effect on any output: prints how far a stage is

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TextIO, TypeVar


def _silence(stream: TextIO) -> None:
    """Redirect a closed stream to the null device: flushing its buffer would fail again when Python exits."""
    with contextlib.suppress(OSError, ValueError):  # a stream without a file descriptor, or closed
        nowhere = os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(nowhere, stream.fileno())
        finally:
            os.close(nowhere)


class Tee:
    """A text stream that prefixes each line, writes it to the terminal and to a log, and survives a closed terminal."""

    def __init__(self, terminal: TextIO, log: TextIO, prefix: str) -> None:
        self._terminal: TextIO | None = terminal
        self._log, self._prefix = log, prefix
        self._fresh = True  # whether the next text starts a line

    def write(self, text: str) -> int:
        """Write `text` to terminal and log, skipping a closed terminal. Return the number of characters."""
        self._log.write(text)
        self._log.flush()
        if text and self._terminal is not None:
            try:
                self._terminal.write("".join(self._line(piece) for piece in text.splitlines(keepends=True)))
                self._terminal.flush()
            except (OSError, ValueError):
                _silence(self._terminal)
                self._terminal = None
        return len(text)

    def _line(self, piece: str) -> str:
        prefix = self._prefix if self._fresh else ""
        self._fresh = piece.endswith(("\n", "\r"))
        return prefix + piece

    def flush(self) -> None:
        """Do nothing: every write is flushed."""

    def isatty(self) -> bool:
        """Return False: libraries then print plain lines."""
        return False


Group = TypeVar("Group")

INTERVAL = 10.0  # seconds between two printed lines


def with_progress(
    groups: Iterable[Group], total: int | None, title: str, unit: str = "images", count: Callable[[Any], int] = len
) -> Iterator[Group]:
    """Yield groups, and print progress every ten seconds: units done of `total`, speed, time left.

    The size of a group is its length; for other sizes, pass `count`. `total` is None if unknown.
    """
    began = last = time.monotonic()
    done = 0
    for group in groups:
        yield group
        done += count(group)
        now = time.monotonic()
        if now - last >= INTERVAL and done != total:
            speed = done / (now - began)
            of = "" if total is None else f" of {total:,}"
            left = "" if total is None else f", {max(0, total - done) / speed:,.0f} s left"
            print(f"{title}: {done:,}{of} {unit}, {speed:,.0f} {unit}/s{left}", flush=True)
            last = now


def each_with_progress(items: Iterable[Group], total: int | None, title: str) -> Iterator[Group]:
    """Yield images one by one, and print progress like `with_progress`."""
    yield from with_progress(items, total, title, count=lambda _: 1)
