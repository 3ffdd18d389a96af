"""SIGTERM and Ctrl-C let the update end and a checkpoint be written, then stop."""

# No effect on any output: remembers a signal

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Interrupt:
    """Remembers the signal that asked the training to stop."""

    def __init__(self) -> None:
        self.signal: int | None = None

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Take the signal; a second Ctrl-C stops at once. A second SIGTERM says the same again, and changes nothing."""
        if self.signal is not None and number == signal.SIGINT:
            raise SystemExit(128 + number)
        self.signal = self.signal or number


@contextmanager
def interruptible() -> Iterator[Interrupt]:
    """Yield an `Interrupt` that takes SIGTERM and SIGINT inside the block."""
    interrupt = Interrupt()
    before = {number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield interrupt
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
