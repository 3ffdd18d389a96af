"""What a stage writes to: the terminal and its log at once, with a progress bar where the terminal can show one.

Nothing here changes a byte of an output.
"""

# No effect on any output: writes lines and bars to the terminal and the log

import contextlib
import os
from pathlib import Path
from typing import TextIO

CLEAR = "\r\x1b[K"  # go to the first column and erase the line, in the control codes of every terminal (ECMA-48)
WIDEST = 30  # characters of the bar itself


def _below_snakemake() -> bool:
    import psutil

    for process in psutil.Process().parents():
        with contextlib.suppress(psutil.Error):  # gone meanwhile, or somebody else's
            words = [Path(word) for word in process.cmdline()[:3]]
            if any("snakemake" in (word.name, word.parent.name) for word in words):
                return True
    return False


def shows_bars(stream: TextIO) -> bool:
    """Return whether a line can be redrawn in place there: a terminal that is not dumb, and this stage's alone.

    Snakemake runs several stages on one terminal, where their bars would write over each other.
    """
    try:
        terminal = stream.isatty()
    except ValueError:  # closed
        return False
    return terminal and os.environ.get("TERM", "dumb") != "dumb" and not _below_snakemake()


def bar_line(prefix: str, share: float, text: str, width: int) -> str:
    """Return the line of a bar, below `width` characters: prefix, percent, the bar in what room is left, and `text`."""
    start = f"{prefix}{int(100 * share):>3}% "
    room = min(WIDEST, width - 1 - len(start) - len(text) - 3)
    graph = f"|{'#' * int(room * share):<{room}}| " if room > 3 else ""
    return (start + graph + text)[: width - 1]  # in the last column some terminals begin a new line


class Bar:
    """The line that stands below all others on a terminal. The streams to that terminal share it."""

    def __init__(self) -> None:
        self._text = ""
        self._unfinished = False

    def below(self, lines: str) -> str:
        """Return what writes `lines` in place of the bar, and the bar below them, once the last of them has ended."""
        start = "" if self._unfinished else CLEAR
        self._unfinished = not lines.endswith("\n")
        return start + lines + ("" if self._unfinished else self._text)

    def redrawn(self, text: str) -> str:
        """Return what shows `text` as the bar; an unfinished line is not written over."""
        self._text = text
        return "" if self._unfinished else CLEAR + text


def _silence(stream: TextIO) -> None:
    """Lead a stream whose other end is gone to nowhere: what it still holds would fail again when Python ends."""
    with contextlib.suppress(OSError, ValueError):  # a stream of no file, or closed
        nowhere = os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(nowhere, stream.fileno())
        finally:
            os.close(nowhere)


class Tee:
    """A text stream that prefixes each line, writes it to the terminal and to a log, and survives a closed terminal.

    Two streams to one terminal share a `bar`; without one, or where the terminal cannot show it, lines are plain. A bar
    never reaches the log.
    """

    def __init__(self, terminal: TextIO, log: TextIO, prefix: str, bar: Bar | None = None) -> None:
        self._terminal: TextIO | None = terminal
        self._log = log
        self._prefix = prefix
        self._bar = bar if bar is not None and shows_bars(terminal) else None
        self._fresh = True

    def write(self, text: str) -> int:
        """Write `text` to both; a terminal that is gone is dropped."""
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
        """Return whether `draw` shows anything."""
        return self._bar is not None and self._terminal is not None

    def draw(self, share: float, text: str) -> None:
        """Redraw the bar: `share` done, from 0 to 1, and what to say beside it. Without a bar nothing happens."""
        if self._bar is not None and self._terminal is not None:
            try:
                width = os.get_terminal_size(self._terminal.fileno()).columns
            except (OSError, ValueError):
                width = 0
            self._show(self._bar.redrawn(bar_line(self._prefix, share, text, width or 80)))  # 0: it does not say

    def clear(self) -> None:
        """Take the bar away."""
        if self._bar is not None:
            self._show(self._bar.redrawn(""))

    def flush(self) -> None:
        """Do nothing: every write is flushed."""

    def isatty(self) -> bool:
        """Return False: libraries then print plain lines."""
        return False
