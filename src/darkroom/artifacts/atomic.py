"""Files and folders that appear whole or not at all.

Everything is written into a temporary sibling, flushed to the disk, and renamed: a reader never sees half of it, and a
writer that is killed leaves no half artifact under the real name.
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
    """Remove the temporary siblings of writers that were killed: their process is gone, or has this one's number."""
    for stump in path.parent.glob(f".{path.name}.tmp-*"):
        number = int(stump.name.rpartition("-")[2])
        try:
            os.kill(number, 0)
            alive = number != os.getpid()
        except ProcessLookupError:
            alive = False
        except PermissionError:
            alive = True
        if not alive:
            shutil.rmtree(stump) if stump.is_dir() else stump.unlink()


def require_writable(path: Path) -> None:
    """Make the parent of `path` and check that something can be written there.

    Raises:
        DarkroomError: the parent cannot be made or written; names it.
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
            "Make the folder writable, or free the name, and run the same command again."
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
    """Write `data` to `path`, whole or not at all; an older file (or a read-only link of DVC's cache) is replaced."""
    require_writable(path)
    temporary = _sibling(path)
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename is None:  # a full disk is told without its place
            error.filename = str(path)
        raise
    _sync(path.parent)


def json_bytes(value: Any) -> bytes:
    """Return a JSON value with its keys in order and a newline at the end: the same value gives the same bytes."""
    return (json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) + "\n").encode()


def write_json(path: Path, value: Any) -> None:
    """Write a JSON value as `json_bytes` gives it."""
    write_bytes(path, json_bytes(value))
