"""What the bodies of the toy stages share."""

# No effect on any output: waits, and reads files

import time
from collections.abc import Callable
from pathlib import Path


def hold(place: str, unless: Callable[[], bool] = lambda: False) -> None:
    """Say that a stage is at a place, and wait there, as long as a test has a file of this name in .darkroom/hold."""
    file = Path(".darkroom/hold") / place
    if file.exists():
        file.with_name(f"{place} reached").touch()
    while file.exists() and not unless():
        time.sleep(0.01)


def read(folder: str) -> bytes:
    """Return what is in all files below a folder."""
    return b"".join(path.read_bytes() for path in sorted(Path(folder).rglob("*")) if path.is_file())
