"""What the bodies of the toy stages share."""

# No effect on any output: waits, and reads files

import time
from collections.abc import Callable
from pathlib import Path


def hold(place: str, unless: Callable[[], bool] = lambda: False) -> None:
    """Wait as long as a test holds a stage at a place, by the file of this name in .darkroom/hold."""
    while (Path(".darkroom/hold") / place).exists() and not unless():
        time.sleep(0.01)


def read(folder: str) -> bytes:
    """Return what is in all files below a folder."""
    return b"".join(path.read_bytes() for path in sorted(Path(folder).rglob("*")) if path.is_file())
