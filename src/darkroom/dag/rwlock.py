"""DVC's `rwlock`, the list of the files that processes work on, for processes that a signal ends and for several nodes.

An entry names a file that its process keeps locked, so processes on other machines that share the folder count as
running; plain DVC checks only PIDs of its own machine, and takes zombies for running. A truncated `rwlock` counts as
empty, and a missing entry is no error. Ctrl-C waits until the file is written: DVC, interrupted while it takes the lock
of this file, would wait for itself forever.
"""

import atexit
import fcntl
import json
import os
import secrets
import signal
import socket
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from dvc import rwlock
from dvc.lock import make_lock

from darkroom.dag.records import HOLDERS, held, is_locked

LOCKED: list[Any] = []  # open files with locks, which must not be closed before this process ends


@contextmanager
def _delayed_interrupt() -> Iterator[None]:
    """Handle a SIGINT when the block has ended; a second one interrupts the block, and may leave its lock held."""
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):  # ignored, or the default
        yield
        return
    interrupted = False

    def note(number: int, frame: Any) -> None:
        nonlocal interrupted
        if interrupted:
            handler(number, frame)
        interrupted = True

    signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if interrupted:
            signal.raise_signal(signal.SIGINT)


@contextmanager
def edit_rwlock(lock_dir: str, fs: Any = None, hardlink: bool = False) -> Iterator[dict[str, Any]]:
    """Yield what `rwlock` holds (path: holder under `write`, a list under `read`); write it when the block ends.

    Entries of processes that have ended are removed first.
    """
    path = Path(lock_dir, rwlock.RWLOCK_FILE)
    lock_file = make_lock(str(path.with_name(rwlock.RWLOCK_LOCK)), tmp_dir=lock_dir, hardlink_lock=hardlink, wait=True)
    with _delayed_interrupt(), lock_file:
        entries: dict[str, Any] = {}
        with suppress(OSError, ValueError, rwlock.Invalid):
            entries = rwlock.SCHEMA(json.loads(path.read_text(encoding="utf-8")))
        lock = {
            "read": defaultdict(list, entries.get("read", {})),
            "write": defaultdict(dict, entries.get("write", {})),
        }
        for kind in ("write", "read"):
            drop(lock, kind, lambda entry: not held(entry, path.with_name(HOLDERS.name)))
        yield lock
        temporary = path.with_name(f"{path.name}.tmp")
        temporary.write_text(json.dumps(lock), encoding="utf-8")
        temporary.replace(path)


def drop(lock: dict[str, Any], kind: str, is_gone: Callable[[Any], bool], paths: Iterable[str] | None = None) -> None:
    """Remove entries of a kind, `read` or `write`, from the content of `rwlock`, for some `paths`; None: for all."""
    for path in list(lock[kind] if paths is None else paths):
        entries = lock[kind].pop(path, [])
        remaining = [entry for entry in (entries if kind == "read" else [entries]) if entry and not is_gone(entry)]
        if remaining:
            lock[kind][path] = remaining if kind == "read" else remaining[0]


@cache  # by `pid`: a forked process gets a file of its own
def _keep_locked(folder: Path, pid: int) -> str:
    """Create and lock a file for the lifetime of this process, and return its name. It removes those of ended ones."""
    folder.mkdir(parents=True, exist_ok=True)
    for ended in folder.glob("[!.]*"):
        is_locked(ended, remove=True)
    name = f"{socket.gethostname()}-{pid}-{secrets.token_hex(4)}"
    temporary = folder / f".{name}"
    file = temporary.open("w")
    fcntl.flock(file, fcntl.LOCK_EX)
    temporary.rename(folder / name)
    LOCKED.append(file)
    atexit.register(lambda: (folder / name).unlink(missing_ok=True) if os.getpid() == pid else None)
    return name


def _named(lock: Callable[..., Any]) -> Callable[..., Any]:
    """Let an entry of `rwlock` name the file that its process keeps locked."""

    def take(tmp_dir: str, fs: Any, cmd: str, *args: Any, **options: Any) -> Any:
        holder = _keep_locked(Path(tmp_dir, HOLDERS.name), os.getpid())
        return lock(tmp_dir, fs, f"{cmd} #{holder}", *args, **options)

    return take


def install() -> None:
    """Replace DVC's functions."""
    rwlock._edit_rwlock = edit_rwlock
    rwlock._release_write = lambda lock, info, paths: drop(lock, "write", info.__eq__, paths)
    rwlock._release_read = lambda lock, info, paths: drop(lock, "read", info.__eq__, paths)
    rwlock.psutil = SimpleNamespace(pid_exists=bool)  # all that it calls: `edit_rwlock` has removed ended processes
    rwlock.rwlock = _named(rwlock.rwlock)
