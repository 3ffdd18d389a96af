"""What DVC cannot hash in a folder does not stop `darkroom init`: .dvcignore leaves it out."""

# No effect on any output: writes .dvcignore and a link, which DVC and `ingest` read as the folder's files

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from darkroom.artifacts.atomic import write_bytes
from darkroom.dag.hashable import IGNORE, inside, leave_out, may_be_left_out, printable, unhashable
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
        DarkroomError: the folder is the repository's own, or the name of the link is taken.
    """
    folder = Path(source).expanduser()
    faults = []
    if folder.is_dir():
        require_own(folder)
        faults = unhashable(folder)
    if not faults or not all(map(may_be_left_out, faults)):  # the latter is refused where the source is opened
        yield source, ()
        return
    ignore = Path(IGNORE)
    before = ignore.read_bytes() if ignore.is_file() else None
    link = folder if inside(folder) is not None else _LINKS / part_name(name_of(folder))
    new = link != folder and _is_free(link, folder)
    kept = False
    try:
        if new:
            link.parent.mkdir(exist_ok=True)
            link.symlink_to(folder.absolute())
        leave_out([link])
        yield str(link), _said(folder, link, [f"{printable(fault.path)} ({fault.what})" for fault in faults])
        kept = not dry_run
    finally:
        if not kept:
            write_bytes(ignore, before) if before is not None else ignore.unlink(missing_ok=True)
            if new:
                link.unlink(missing_ok=True)
                with suppress(OSError):  # it holds other links
                    link.parent.rmdir()


def _is_free(link: Path, folder: Path) -> bool:
    """Return whether there is no link yet; one to the folder serves again."""
    if not link.is_symlink() and not link.exists():
        return True
    if link.resolve() == folder.resolve():
        return False
    raise DarkroomError(
        f"{printable(str(folder))} holds files that DVC cannot hash, so it is to be read through {link}, a link, and "
        f"that leads elsewhere: remove the link or rename the folder."
    )


def _said(folder: Path, link: Path, faults: list[str]) -> tuple[str, ...]:
    more = f" and {len(faults) - _SHOWN:,} more" if len(faults) > _SHOWN else ""
    files = "1 file" if len(faults) == 1 else f"{len(faults):,} files"
    found = [f"DVC cannot hash {files}, which {IGNORE} leaves out: {', '.join(faults[:_SHOWN])}{more}."]
    if link != folder:
        found.append(
            f"{link} is a link to {printable(str(folder))}, as {IGNORE} knows no files elsewhere: commit both."
        )
    return tuple(found)
