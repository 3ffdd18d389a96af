"""Keeps off the terminal what DVC, libraries and the processes of a measurement print."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from darkroom.artifacts.atomic import require_writable


@contextmanager
def quiet(log: Path) -> Iterator[None]:
    """Send to a log what this process and those that it starts print."""
    require_writable(log)
    sys.stdout.flush()
    sys.stderr.flush()
    kept = {number: os.dup(number) for number in (1, 2)}
    try:
        with log.open("wb") as file:
            for number in kept:
                os.dup2(file.fileno(), number)
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for number, terminal in kept.items():
            os.dup2(terminal, number)
            os.close(terminal)
