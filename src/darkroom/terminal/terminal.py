"""The output of a stage: terminal and log at once, a progress bar where the terminal shows one, lines of progress."""

# No effect on any output: prints how far a stage is

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TextIO, TypeVar

CLEAR = "\r\x1b[K"  # go to the first column and erase the line (ECMA-48)
WIDEST = 30  # maximum characters of the bar itself


def _below_snakemake() -> bool:
    import psutil

    for process in psutil.Process().parents():
        with contextlib.suppress(psutil.Error):  # a process that has ended, or of another user
            words = [Path(word) for word in process.cmdline()[:3]]
            if any("snakemake" in (word.name, word.parent.name) for word in words):
                return True
    return False


def shows_bars(stream: TextIO) -> bool:
    """Return whether the stream is a terminal that can redraw a line, used by this stage alone.

    Snakemake runs several stages on one terminal, where their bars would overwrite each other.
    """
    try:
        terminal = stream.isatty()
    except ValueError:  # closed
        return False
    return terminal and os.environ.get("TERM", "dumb") != "dumb" and not _below_snakemake()


def bar_line(prefix: str, fraction: float, text: str, width: int) -> str:
    """Return the line of a bar, shorter than `width` characters: prefix, percent, a bar in the free space, `text`."""
    start = f"{prefix}{int(100 * fraction):>3}% "
    room = min(WIDEST, width - 1 - len(start) - len(text) - 3)
    graph = f"|{'#' * int(room * fraction):<{room}}| " if room > 3 else ""
    return (start + graph + text)[: width - 1]  # some terminals begin a new line after the last column


class Bar:
    """The last line of a terminal, below all other lines. All streams to that terminal share it."""

    def __init__(self) -> None:
        self._text = ""
        self._unfinished = False

    def below(self, lines: str) -> str:
        """Return the control codes and text that print `lines` above the bar; an unfinished line hides the bar."""
        start = "" if self._unfinished else CLEAR
        self._unfinished = not lines.endswith("\n")
        return start + lines + ("" if self._unfinished else self._text)

    def redrawn(self, text: str) -> str:
        """Return the control codes and text that show `text` as the bar; an unfinished line is not overwritten."""
        self._text = text
        return "" if self._unfinished else CLEAR + text


def _silence(stream: TextIO) -> None:
    """Redirect a closed stream to the null device: flushing its buffer would fail again when Python exits."""
    with contextlib.suppress(OSError, ValueError):  # a stream without a file descriptor, or closed
        nowhere = os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(nowhere, stream.fileno())
        finally:
            os.close(nowhere)


class Tee:
    """A text stream that prefixes each line, writes it to the terminal and to a log, and survives a closed terminal.

    Two streams to one terminal share a `bar`. Without a bar, or where the terminal cannot show it, lines are plain. A
    bar is never written to the log.
    """

    def __init__(self, terminal: TextIO, log: TextIO, prefix: str, bar: Bar | None = None) -> None:
        self._terminal: TextIO | None = terminal
        self._log = log
        self._prefix = prefix
        self._bar = bar if bar is not None and shows_bars(terminal) else None
        self._fresh = True

    def write(self, text: str) -> int:
        """Write `text` to terminal and log; a closed terminal is dropped. Return the number of characters."""
        self._log.write(text)
        self._log.flush()
        if text:
            lines = "".join(self._line(piece) for piece in text.splitlines(keepends=True))
            self._show(lines if self._bar is None else self._bar.below(lines))
        return len(text)

    def _line(self, piece: str) -> str:
        prefix = self._prefix if self._fresh else ""
        self._fresh = piece.endswith(("\n", "\r"))
        return prefix + piece

    def _show(self, text: str) -> None:
        if self._terminal is not None:
            try:
                self._terminal.write(text)
                self._terminal.flush()
            except (OSError, ValueError):
                _silence(self._terminal)
                self._terminal = None

    @property
    def has_bar(self) -> bool:
        """Whether `draw` has an effect."""
        return self._bar is not None and self._terminal is not None

    def draw(self, fraction: float, text: str) -> None:
        """Redraw the bar with the completed fraction, 0 to 1, and a text beside it. No effect without a bar."""
        if self._bar is not None and self._terminal is not None:
            try:
                width = os.get_terminal_size(self._terminal.fileno()).columns
            except (OSError, ValueError):
                width = 0
            self._show(self._bar.redrawn(bar_line(self._prefix, fraction, text, width or 80)))  # 0: unknown width

    def clear(self) -> None:
        """Remove the bar."""
        if self._bar is not None:
            self._show(self._bar.redrawn(""))

    def flush(self) -> None:
        """Do nothing: every write is flushed."""

    def isatty(self) -> bool:
        """Return False: libraries then print plain lines."""
        return False


Group = TypeVar("Group")

INTERVAL = 10.0  # seconds between two lines


def with_progress(
    groups: Iterable[Group], total: int | None, what: str, unit: str = "images", count: Callable[[Any], int] = len
) -> Iterator[Group]:
    """Yield groups, and print a line every ten seconds: units done of `total`, speed, remaining time.

    Args:
        groups: the groups.
        total: of all groups; None: unknown.
        what: the first word of a line.
        unit: what is counted.
        count: the number in a group: its length. A named tuple has another: wrap what it is made of.
    """
    began = last = time.monotonic()
    done = 0
    for group in groups:
        yield group
        done += count(group)
        now = time.monotonic()
        if now - last >= INTERVAL and done != total:
            speed = done / (now - began)
            of, left = (
                ("", "") if total is None else (f" of {total:,}", f", {max(0, total - done) / speed:,.0f} s left")
            )
            print(f"{what}: {done:,}{of} {unit}, {speed:,.0f} {unit}/s{left}", flush=True)
            last = now


def each_with_progress(items: Iterable[Group], total: int | None, what: str) -> Iterator[Group]:
    """Yield images one by one, and print lines as `with_progress`."""
    yield from with_progress(items, total, what, count=lambda _: 1)
