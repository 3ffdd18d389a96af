"""What DVC cannot hash in a folder does not stop `darkroom init`: .dvcignore leaves it out."""

# No effect on any output: writes .dvcignore and a link, which DVC and `ingest` read as the folder's files

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import chain, count
from pathlib import Path

from darkroom.artifacts.atomic import write_bytes
from darkroom.dag.hashable import IGNORE, inside, leave_out, may_be_left_out, printable, require_hashable, unhashable
from darkroom.errors import DarkroomError
from darkroom.tools.init.subject import name_of, part_name, require_own

_LINKS = Path("data/links")
_SHOWN = 10  # files that are named


@contextmanager
def left_out(source: str, dry_run: bool) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Give the source with nothing in it that DVC cannot hash, and sentences on what is left out.

    DVC heeds .dvcignore inside of the repository alone, so a folder elsewhere is read through a link in data/links.
    A dry run, and a block that raises, leave .dvcignore and data/links as they were.

    Args:
        source: as a person names it; what is no folder is given as it is.
        dry_run: whether nothing is to be written.

    Raises:
        DarkroomError: the folder is the repository's own, holds what cannot be left out, or nothing can be written.
    """
    folder = Path(source).expanduser()
    faults = []
    if folder.is_dir():
        require_own(folder)
        faults = unhashable(folder)
    if not faults:
        yield source, ()
        return
    if not all(map(may_be_left_out, faults)):
        require_hashable({folder: "darkroom init"})
    ignore = Path(IGNORE)
    before = ignore.read_bytes() if ignore.is_file() else None
    link = folder if inside(folder) is not None else _link_to(folder)
    new = link != folder and not link.is_symlink()
    kept = False
    handler = signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    try:
        try:
            if new:
                link.parent.mkdir(exist_ok=True)
                link.symlink_to(folder.absolute())
            leave_out([link])
        except OSError as error:
            raise DarkroomError(f"{error.filename} cannot be written: {error.strerror}.") from error
        yield str(link), _said(folder, link, [f"{printable(fault.path)} ({fault.what})" for fault in faults])
        kept = not dry_run
    finally:
        if not kept:
            _give_back(ignore, before)
            if new:
                with suppress(OSError):  # none was made, or others stand beside it
                    link.unlink()
                    link.parent.rmdir()
        signal.signal(signal.SIGTERM, handler)


def _link_to(folder: Path) -> Path:
    """Return the link to a folder, there already or to be made; numbered where others have its name."""
    first = _LINKS / part_name(name_of(folder))
    names = chain([first], (first.with_name(f"{first.name}-{number}") for number in count(2)))
    return next(link for link in names if link.resolve() == folder.resolve() or not os.path.lexists(link))


def _give_back(ignore: Path, before: bytes | None) -> None:
    """Write .dvcignore as it was; None: there was none."""
    if before is None:
        ignore.unlink(missing_ok=True)
    elif ignore.read_bytes() != before:
        write_bytes(ignore, before)


def _said(folder: Path, link: Path, faults: list[str]) -> tuple[str, ...]:
    more = f" and {len(faults) - _SHOWN:,} more" if len(faults) > _SHOWN else ""
    files = "1 file" if len(faults) == 1 else f"{len(faults):,} files"
    found = [f"DVC cannot hash {files}, which {IGNORE} leaves out: {', '.join(faults[:_SHOWN])}{more}."]
    if link != folder:
        found.append(f"{link} is a link to {printable(str(folder))}, as {IGNORE} knows no files elsewhere.")
    return tuple(found)
