"""Crashes at chosen points of a save, made below the library: the system calls that every save must make are watched.

A crash is SIGKILL to oneself. What was written stays with the kernel, so this is the death of a process and not of a
machine: that files are flushed before they are renamed is shown by the order of the calls, not by pulling a plug.
"""

import os
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _path(handle: Any) -> Path:
    return Path(f"/proc/self/fd/{handle}").readlink()


@dataclass
class Save:
    """What is known of the saves of this process: how many checkpoints it renamed into place, and the chosen one."""

    state: Path
    at: int
    renamed: int = 0
    flushed: list[str] = field(default_factory=list)  # files of the chosen save

    @property
    def chosen(self) -> bool:
        """Whether the next checkpoint to be renamed is the chosen one."""
        return self.renamed == self.at - 1

    def is_temporary(self, path: Path) -> bool:
        return any(
            parent.parent == self.state and parent.name.startswith(".images-") for parent in (path, *path.parents)
        )


# What a crash does with: the save, the name of the call, the path, and the handle or None.
Crash = Callable[[Save, str, Path, int | None], None]


def half(save: Save, call: str, path: Path, handle: int | None) -> None:
    """Half of a file is written: the second one of the save."""
    if call == "before fsync" and save.chosen and len(save.flushed) == 1 and handle is not None:
        with path.open("r+b") as file:
            file.truncate(os.fstat(handle).st_size // 2)
        _die()


def no_manifest(save: Save, call: str, path: Path, handle: int | None) -> None:
    """All files are there, and the manifest is on its way."""
    if call == "before fsync" and save.chosen and "manifest" in path.name:
        _die()


def not_renamed(save: Save, call: str, path: Path, handle: int | None) -> None:
    """The manifest is there, and the checkpoint still has its temporary name."""
    if call == "before rename" and save.chosen:
        _die()


def not_pruned(save: Save, call: str, path: Path, handle: int | None) -> None:
    """The checkpoint has its name; its parent is not flushed, and nothing older is removed."""
    if call == "after rename" and save.renamed == save.at:
        _die()


def half_pruned(save: Save, call: str, path: Path, handle: int | None) -> None:
    """The first file of an older checkpoint is removed, the others are not."""
    if call == "after unlink" and save.renamed >= save.at and not path.name.startswith("."):
        _die()


def full_disk(save: Save, call: str, path: Path, handle: int | None) -> None:
    """Somebody else fills the disk between the first and the second file of the save."""
    if call == "after fsync" and save.chosen and len(save.flushed) == 1:
        with (save.state.parent / "ballast").open("ab", buffering=0) as ballast:
            size = 2**20
            while size:
                try:
                    ballast.write(bytes(size))
                except OSError:
                    size //= 2


CRASHES: dict[str, Crash] = {
    each.__name__: each for each in (half, no_manifest, not_renamed, not_pruned, half_pruned, full_disk)
}
POINTS = [name for name in CRASHES if name != "full_disk"]


def commit(crash: Crash, state: Path, at: int) -> None:
    """Watch the calls of this process and commit the crash in the save number `at` of its life."""
    state = state.resolve()  # as /proc names it
    save = Save(state, at)
    fsync, unlink = os.fsync, os.unlink

    def watched_fsync(handle: Any) -> None:
        number = handle if isinstance(handle, int) else handle.fileno()
        path = _path(number)
        inside = save.is_temporary(path) and path.is_file()
        if inside:
            crash(save, "before fsync", path, number)
        fsync(handle)
        if inside and save.chosen:
            save.flushed.append(path.name)
            crash(save, "after fsync", path, number)

    def watched(rename: Callable[..., None]) -> Callable[..., None]:
        def call(source: Any, target: Any, **options: Any) -> None:
            path = Path(target)
            checkpoint = path.parent == state and path.name.startswith("images-") and save.is_temporary(Path(source))
            if checkpoint:
                crash(save, "before rename", path, None)
            rename(source, target, **options)
            if checkpoint:
                save.renamed += 1
                crash(save, "after rename", path, None)

        return call

    def watched_unlink(path: Any, *, dir_fd: int | None = None) -> None:
        whole = Path(path) if dir_fd is None else _path(dir_fd) / path
        unlink(path, dir_fd=dir_fd)
        if whole.parent.parent == state:
            crash(save, "after unlink", whole, None)

    os.fsync, os.unlink = watched_fsync, watched_unlink
    os.rename, os.replace = watched(os.rename), watched(os.replace)
