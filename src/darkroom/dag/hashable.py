"""Find files that DVC cannot hash in input folders, where `dvc repro` hangs or fails without naming the file."""

import errno
import os
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from darkroom.errors import DarkroomError

IGNORE = ".dvcignore"  # at the root of the repository: DVC refuses one in a folder that it hashes
_MOST = 200  # maximum number of files in a message
_BROKEN = {errno.ENOENT: "a link to nothing", errno.ELOOP: "a link that leads to itself"}
_KINDS = {stat.S_IFIFO: "a pipe (FIFO)", stat.S_IFSOCK: "a socket"}


class Fault(NamedTuple):
    """A file or folder that DVC cannot hash: its path below the folder scanned (PEP 383), and why."""

    path: str
    reason: str


def scan(path: Path) -> tuple[list[Fault], list[str]]:
    """Scan files and folders as DVC does before hashing: without following links to folders or opening files.

    A folder that cannot be listed is not a fault here: DVC skips it, and `ingest` lists it. A `path` that does not
    exist has no faults.

    Returns:
        The faults, and the links to folders elsewhere, where DVC does not see changes of files.
    """
    root = os.fsencode(path)
    if not os.path.isdir(root):  # noqa: PTH112, a Path takes no bytes
        reason = _refused(root) if os.path.lexists(root) else None
        return [Fault("", reason)] if reason else [], []
    faults: list[Fault] = []
    linked: list[str] = []
    for folder, folders, files in os.walk(root):
        entries = [*((name, True) for name in folders), *((name, False) for name in files)]
        folders[:] = [name for name in folders if not _foreign(name)]
        for name, is_folder in entries:
            place = os.path.join(folder, name)  # noqa: PTH118
            below = place.removeprefix(root).lstrip(b"/").decode("utf-8", "surrogateescape")
            reason = None
            if _foreign(name):
                reason = "its name is not UTF-8"
            elif is_folder and os.path.islink(place):  # noqa: PTH114
                target = os.path.realpath(place) + b"/"
                linked += [] if target.startswith(os.path.realpath(root) + b"/") else [below]
            elif not is_folder:
                reason = (
                    _refused(place) if name != IGNORE.encode() else "DVC reads no patterns in a folder that it hashes"
                )
            faults += [Fault(below, reason)] if reason else []
    return sorted(faults), sorted(linked)


def _foreign(name: bytes) -> bool:
    return name.decode(errors="ignore").encode() != name


def _refused(path: bytes) -> str | None:
    """Return why DVC cannot read a file; None: it can."""
    try:
        mode = os.stat(path).st_mode  # noqa: PTH116
    except OSError as error:
        return _BROKEN.get(error.errno or 0, f"it cannot be read ({error.strerror})")
    if not stat.S_ISREG(mode):
        return _KINDS.get(stat.S_IFMT(mode), "a device")
    return None if os.access(path, os.R_OK) else "no permission to read it"


def require_hashable(sources: Mapping[Path, str]) -> str:
    """Check that DVC can hash the inputs that no stage writes.

    `sources` maps each folder or file to the key or stage that names it, for the message.

    Returns:
        A hint with one line per folder in which DVC will not see all changes, or "".

    Raises:
        DarkroomError: lists all files that DVC cannot hash and that .dvcignore does not exclude.
    """
    scans = {path: scan(path) for path in sources}
    hashed = {path: _remaining(path, faults) for path, (faults, _) in scans.items()}
    if blocks := [_message(sources[path], path, faults) for path, faults in hashed.items() if faults]:
        raise DarkroomError("\n".join(blocks))
    return "".join(
        f"\n{sources[path]}, {path}: links to folders elsewhere: {len(linked):,}, the first {printable(linked[0])}. "
        "Their images are read, but DVC does not see their changes. Make each a separate part, or copy them here."
        for path, (_, linked) in scans.items()
        if linked
    )


def _remaining(root: Path, faults: Sequence[Fault]) -> list[Fault]:
    """Return the faults without those in files that .dvcignore excludes."""
    if not faults:
        return []
    from darkroom.dag.dvc import ignored

    paths = {fault: os.path.join(Path.cwd(), root, fault.path) for fault in faults}  # noqa: PTH118, lone surrogates
    left_out = ignored(paths.values())
    return [fault for fault, path in paths.items() if path not in left_out or Path(fault.path).name == IGNORE]


def inside(root: Path) -> str | None:
    """Return a path relative to the root of the repository, the working folder, as in .dvcignore; None: outside.

    A link in the repository counts as inside, wherever it points.
    """
    relative = os.path.relpath(os.path.abspath(root))  # noqa: PTH100, links are not resolved
    return None if relative.split("/")[0] == ".." else relative


def printable(text: str) -> str:
    r"""Return a path for a terminal: a byte that is not UTF-8 becomes `\xNN`, a control code `�`."""
    shown = text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in shown)


def _message(name: str, root: Path, faults: Sequence[Fault]) -> str:
    lines = [f"{name}, {root}: DVC cannot hash {len(faults):,} of its files or folders and would hang or fail:"]
    lines += [f"  {printable(fault.path) or '.'}: {fault.reason}" for fault in faults[:_MOST]]
    lines += [f"  and {len(faults) - _MOST:,} more"] if len(faults) > _MOST else []
    advice = "Remove or rename them, make them readable, or exclude them in .dvcignore, next to dvc.yaml"
    if inside(root) is None and root.is_dir():
        advice += (
            ". .dvcignore cannot name files outside of the repository: make a link, "
            f"`ln -s {root.absolute()} pictures`, and use `pictures` in place of the folder"
        )
    return "\n".join([*lines, f"{advice}. See docs/how-to/choose-data.md."])
