"""Finds the image files below a folder, and counts what else lies there, so that nothing is silently gone.

What is found does not depend on the locale or on the order in which the file system lists a folder.
"""

import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from darkroom.data.damage import Finding, Reason
from darkroom.data.formats import FORMATS
from darkroom.data.keys import shown
from darkroom.data.sources.table import TABLES

# Also of formats that are not read (HEIF, JPEG XL, TGA): their files are listed as no images, not passed over.
ENDINGS = frozenset({"heic", "heif", "jxl", "tga"}).union(*(format.extensions for format in FORMATS.values()))
_SKIPPED = "__MACOSX"  # what macOS adds to an archive
_NAMED = 20  # endings of other files that are counted one by one


@dataclass(frozen=True)
class Fault:
    """A sample that cannot be read: its path, where it is for people, and why."""

    path: str
    where: str
    finding: Finding


@dataclass
class Found:
    """What lies below a folder; all paths relative to it, in no order.

    images: files by their ending; tables: metadata tables; faults: samples that cannot be read; ignored: other files,
    by ending; hidden: files and folders passed over, what lies in the folders not counted; loops: links to a folder
    that they lie in.
    """

    images: list[str] = field(default_factory=list)
    tables: list[str] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    ignored: Counter[str] = field(default_factory=Counter)
    hidden: int = 0
    loops: int = 0

    def counts(self) -> dict[str, Any]:
        """Return what a manifest says: a few dozen numbers, however many files there are."""
        by_count = sorted(self.ignored.items(), key=lambda item: (-item[1], item[0]))
        ignored = {shown(ending): count for ending, count in by_count[:_NAMED]}
        if rest := sum(count for _, count in by_count[_NAMED:]):
            ignored["others"] = rest
        return {"files": len(self.images), "hidden": self.hidden, "ignored": ignored, "loops": self.loops}

    def fail(self, path: str, detail: str) -> None:
        """List a sample that cannot be read."""
        self.faults.append(Fault(path, shown(path), Finding(Reason.UNREADABLE, detail)))


def split_ending(path: str) -> tuple[str, str]:
    """Return a path without its ending, and the ending in small letters without its dot; "" where there is none."""
    stem, dot, ending = path.rpartition(".")
    if not dot or "/" in ending or not stem or stem.endswith("/"):
        return path, ""
    return stem, ending.lower()


def walk(root: bytes, captions: bool, tables: bool) -> Found:
    """Return what lies below a folder; links to files and folders are followed.

    Args:
        root: the folder.
        captions: whether KEY.txt beside an image is its caption, and so no other file.
        tables: whether metadata tables are read, and so no other files.

    Raises:
        OSError: the folder itself cannot be listed.
    """
    found = Found()
    # For each folder to come: its path and the (device, inode) of the folders that it lies in.
    waiting: list[tuple[str, tuple[tuple[int, int], ...]]] = [("", ())]
    while waiting:
        folder, above = waiting.pop()
        full = root + b"/" + folder.encode("utf-8", "surrogateescape")
        try:
            status = os.stat(full)  # noqa: PTH116, a Path takes no bytes
            here = status.st_dev, status.st_ino
            if here in above:
                found.loops += 1
                continue
            with os.scandir(full) as listing:
                within = _look(listing, f"{folder}/" if folder else "", found, captions, tables)
        except OSError as error:
            if not folder:
                raise
            found.fail(folder, f"the folder cannot be listed: {error.strerror}")
            continue
        if within is None and split_ending(folder)[1] in ENDINGS:
            found.fail(folder, "an empty folder, not a file")
        waiting += [(each, (*above, here)) for each in within or ()]
    return found


def _look(
    listing: Iterable[os.DirEntry[bytes]], prefix: str, found: Found, captions: bool, tables: bool
) -> list[str] | None:
    """Add what lies in one folder; return the folders in it, None where it is empty."""
    folders: list[str] = []
    stems: set[str] = set()
    texts: list[str] = []
    empty = True
    for entry in listing:
        empty = False
        name = entry.name.decode("utf-8", "surrogateescape")
        path = prefix + name
        if name.startswith(".") or name == _SKIPPED:
            found.hidden += 1
            continue
        stem, ending = split_ending(path)
        is_folder, is_file = _kind(entry)
        if is_folder:
            folders.append(path)
        elif is_file and ending in ENDINGS:
            found.images.append(path)
            stems.add(stem)
        elif is_file and tables and name in TABLES:
            found.tables.append(path)
        elif is_file and captions and ending == "txt":
            texts.append(stem)
        elif not is_file and (entry.is_symlink() or ending in ENDINGS):
            # A link of any ending: it may have led to a folder of images.
            stems.add(stem)
            found.fail(path, "a link to nothing" if entry.is_symlink() else "not a regular file")
        else:
            found.ignored[f".{ending}" if ending else ""] += 1
    if orphans := sum(stem not in stems for stem in texts):
        found.ignored[".txt"] += orphans
    return None if empty else folders


def _kind(entry: os.DirEntry[bytes]) -> tuple[bool, bool]:
    try:
        return entry.is_dir(), entry.is_file()
    except OSError:  # a link that leads to itself
        return False, False
