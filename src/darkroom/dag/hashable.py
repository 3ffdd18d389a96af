"""Finds what DVC cannot hash in the folders that stages read: there `dvc repro` hangs, or fails and names no file."""

import errno
import os
import re
import stat
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from darkroom.errors import DarkroomError

IGNORE = ".dvcignore"  # at the root of the repository: DVC refuses one in a folder that it hashes
_MOST = 200  # files that a message lists
_KINDS = ((stat.S_ISFIFO, "a pipe (FIFO)"), (stat.S_ISSOCK, "a socket"))


@dataclass(frozen=True)
class Fault:
    """A file or folder that DVC cannot hash: its path below the folder scanned (PEP 383), and why."""

    path: str
    what: str


@dataclass(frozen=True)
class Scan:
    """What DVC would meet in a folder.

    faults: what it cannot hash, in ascending order of the paths.
    linked: links to folders elsewhere: DVC does not look into them, so it sees no change of a file there.
    """

    faults: tuple[Fault, ...] = ()
    linked: tuple[str, ...] = ()


def scan(path: Path) -> Scan:
    """Look at each file and folder as DVC does before it hashes: links to folders are not followed, nothing is opened.

    Takes about 4 µs a file. A folder that cannot be listed is no fault here: DVC passes over it, and `ingest` lists it.

    Args:
        path: a folder, a file, or nothing that exists, in which nothing is found.
    """
    root = os.fsencode(path)
    if not os.path.isdir(root):  # noqa: PTH112, a Path takes no bytes
        what = _refused(root) if os.path.lexists(root) else None
        return Scan((Fault("", what),) if what else ())
    faults: list[Fault] = []
    linked: list[str] = []
    waiting = [""]
    while waiting:
        folder = waiting.pop()
        try:
            with os.scandir(root + b"/" + folder.encode("utf-8", "surrogateescape")) as listing:
                for entry in listing:
                    name = entry.name.decode("utf-8", "surrogateescape")
                    below = f"{folder}/{name}" if folder else name
                    if not name.isprintable() and _foreign(name):
                        faults.append(Fault(below, "its name is not UTF-8"))
                    elif entry.is_dir(follow_symlinks=False):
                        waiting.append(below)
                    elif name == IGNORE:
                        faults.append(Fault(below, "DVC reads no patterns inside of a folder that it hashes"))
                    elif entry.is_symlink() and _leads_to_folder(entry):
                        if not (os.path.realpath(entry.path) + b"/").startswith(os.path.realpath(root) + b"/"):
                            linked.append(below)
                    elif what := _refused(entry.path):
                        faults.append(Fault(below, what))
        except OSError:
            continue
    return Scan(tuple(sorted(faults, key=lambda fault: fault.path)), tuple(sorted(linked)))


def _foreign(name: str) -> bool:
    return any("\ud800" <= letter <= "\udfff" for letter in name)


def _leads_to_folder(entry: os.DirEntry[bytes]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link that leads to itself
        return False


def _refused(path: bytes) -> str | None:
    """Return why DVC cannot read a file; None: it can."""
    try:
        mode = os.stat(path).st_mode  # noqa: PTH116
    except FileNotFoundError:
        return "a link to nothing"
    except OSError as error:
        loops = error.errno == errno.ELOOP
        return "a link that leads to itself" if loops else f"it cannot be read ({error.strerror})"
    if not stat.S_ISREG(mode):
        return next((name for of_kind, name in _KINDS if of_kind(mode)), "a device")
    return None if os.access(path, os.R_OK) else "no permission to read it"


def require_hashable(sources: Mapping[Path, str]) -> str:
    """Check that DVC can hash what stages read and none makes.

    Args:
        sources: for each folder or file the key or stage that names it, for the message.

    Returns:
        A hint, a line for each folder in which DVC will not see all changes; "" where there is none.

    Raises:
        DarkroomError: lists all that DVC cannot hash and that .dvcignore does not leave out, and says what to do.
    """
    scans = {path: scan(path) for path in sources}
    hashed = {path: _remaining(path, found.faults) for path, found in scans.items()}
    if blocks := [_message(sources[path], path, faults) for path, faults in hashed.items() if faults]:
        raise DarkroomError("\n".join(blocks))
    return "".join(
        f"\n{sources[path]}, {path}: links to folders elsewhere: {len(found.linked):,}, the first "
        f"{printable(found.linked[0])}: the images there are read, but DVC sees no change of them. Make each a part of "
        "its own, or put them there."
        for path, found in scans.items()
        if found.linked
    )


def leave_out(roots: Iterable[Path]) -> str:
    """Add a line to .dvcignore for each file that DVC cannot hash, in folders inside of the repository.

    Returns:
        A sentence with the number of lines; "" where none was needed.
    """
    found = {root: _remaining(root, scan(root).faults) for root in roots}
    lines = [line for root, faults in found.items() for fault in faults if (line := _line(root, fault))]
    if not lines:
        return ""
    file = Path(IGNORE)
    before = file.read_text() if file.is_file() else ""
    gap = "" if not before or before.endswith("\n") else "\n"
    file.write_text(before + gap + "".join(f"{line}\n" for line in dict.fromkeys(lines)))
    return f"left out as DVC cannot hash them, by lines of {IGNORE}: {len(lines):,}; commit it\n"


def _remaining(root: Path, faults: Sequence[Fault]) -> list[Fault]:
    """Return the faults that DVC meets: those that .dvcignore leaves out are none."""
    if not faults or inside(root) is None:
        return list(faults)
    from dvc.exceptions import NotDvcRepoError
    from dvc.repo import Repo

    here = Path.cwd()
    with suppress(NotDvcRepoError), Repo() as repo:
        rules = repo.dvcignore
        paths = ((fault, os.path.join(here, root, fault.path)) for fault in faults)  # noqa: PTH118, lone surrogates
        return [
            fault
            for fault, path in paths
            if not may_be_left_out(fault) or not (rules.is_ignored_file(path) or rules.is_ignored_dir(path))
        ]
    return list(faults)


def may_be_left_out(fault: Fault) -> bool:
    """Return whether a line of .dvcignore can leave a fault out: not of what was named itself, nor of a .dvcignore."""
    return fault.path.rpartition("/")[2] not in ("", IGNORE)


def inside(root: Path) -> str | None:
    """Return a path as .dvcignore at the root of the repository, the working folder, names it; None: outside of it.

    A link in the repository is inside, wherever it leads to.
    """
    found = os.path.relpath(os.path.abspath(root))  # noqa: PTH100, a link stays one
    return None if found.split("/")[0] == ".." else found


def pattern(root: Path, below: str) -> str | None:
    """Return the line of .dvcignore that leaves out one path below a folder; None where the folder lies elsewhere.

    What has a meaning in a pattern, and a byte that is not UTF-8, is written `?`.
    """
    folder = inside(root)
    if folder is None:
        return None
    path = "/".join(part for part in (folder, below) if part not in ("", "."))
    return "/" + re.sub(r"[*?\[\]\\\s\ud800-\udfff]", "?", path)


def _line(root: Path, fault: Fault) -> str | None:
    """Return the line of .dvcignore that leaves out a fault; None where there can be none."""
    return pattern(root, fault.path) if may_be_left_out(fault) else None


def printable(text: str) -> str:
    r"""Return a path for a terminal: a byte that is not UTF-8 becomes `\xNN`, a control code `�`."""
    shown = text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in shown)


def _message(name: str, root: Path, faults: Sequence[Fault]) -> str:
    shown = faults[:_MOST]
    lines = [f"{name}, {root}: DVC cannot hash {len(faults):,} of its files or folders, and would hang or fail:"]
    lines += [f"  {printable(fault.path) or '.'}: {fault.what}" for fault in shown]
    if more := Counter(fault.what for fault in faults[_MOST:]):
        lines.append(f"  and more: {', '.join(f'{what} {count:,}' for what, count in more.most_common())}")
    lines.append("Remove or rename them, or give the permission")
    patterns = [line for fault in shown if (line := _line(root, fault))]
    if patterns:
        lines[-1] += (
            f"; or leave them out: `darkroom check --leave-out {printable(str(root))}` adds these lines to {IGNORE}, "
            "beside dvc.yaml:"
        )
        return "\n".join([*lines, *(f"  {line}" for line in patterns)])
    if any(map(may_be_left_out, shown)):
        lines[-1] += (
            f". {IGNORE} knows no files outside of the repository: to leave them out by it, make a link, "
            f"`ln -s {root.absolute()} pictures`, name `pictures` in place of the folder, and ask again"
        )
    lines[-1] += "."
    return "\n".join(lines)
