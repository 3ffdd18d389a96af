"""Files and folders that are written atomically: complete or not at all.

Everything is written into a temporary sibling, flushed to the disk, and renamed. A reader never sees a partial file,
and a killed writer leaves no partial artifact under the final name.
"""

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from darkroom.errors import DarkroomError


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_tree(folder: Path) -> None:
    """Flush every file and folder below `folder`, then the folder itself."""
    for path in folder.rglob("*"):
        _sync(path)
    _sync(folder)


def _sibling(path: Path) -> Path:
    return path.with_name(f".{path.name}.tmp-{os.getpid()}")


def _sweep(path: Path) -> None:
    """Remove the partial files of killed writers: their process has ended, or its number is that of this process."""
    for partial in path.parent.glob(f".{path.name}.tmp-*"):
        number = int(partial.name.rpartition("-")[2])
        try:
            os.kill(number, 0)
            alive = number != os.getpid()
        except ProcessLookupError:
            alive = False
        except PermissionError:
            alive = True
        if not alive:
            shutil.rmtree(partial) if partial.is_dir() else partial.unlink()


def require_writable(path: Path) -> None:
    """Create the parent folder of `path` and check that it is writable.

    Raises:
        DarkroomError: the parent folder cannot be created or written; the message names it.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _sweep(path)
        probe = _sibling(path)
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise DarkroomError(
            f"cannot write {path}: {error.strerror} ({error.filename}). "
            "Make the folder writable, or rename the file, and run the same command again."
        ) from error


@contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """Yield an empty temporary folder that replaces `path` when the block ends without an error."""
    require_writable(path)
    temporary = _sibling(path)
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    try:
        yield temporary
        sync_tree(temporary)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    elif path.exists() or path.is_symlink():
        path.unlink()
    temporary.rename(path)
    _sync(path.parent)


def write_bytes(path: Path, data: bytes) -> None:
    """Write `data` to `path` atomically; an existing file (or a read-only link into DVC's cache) is replaced."""
    require_writable(path)
    temporary = _sibling(path)
    try:
        temporary.write_bytes(data)
        _sync(temporary)
        temporary.replace(path)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename is None:  # the error of a full disk names no file
            error.filename = str(path)
        raise
    _sync(path.parent)


def json_bytes(value: Any) -> bytes:
    """Encode a JSON value with sorted keys and a newline at the end: equal values give equal bytes."""
    return (json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) + "\n").encode()


def write_json(path: Path, value: Any) -> None:
    """Write a JSON value in the form of `json_bytes`, atomically."""
    write_bytes(path, json_bytes(value))
