"""Finds the image files below a folder, and counts all other files, so that nothing is missing silently.

The result does not depend on the locale, or on the order in which the file system lists a folder.
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

# With unsupported formats (HEIF, JPEG XL, TGA): their files are quarantined as no images, not ignored.
ENDINGS = frozenset({"heic", "heif", "jxl", "tga"}).union(*(format.extensions for format in FORMATS.values()))
_SKIPPED = "__MACOSX"  # a folder that macOS adds to archives
_NAMED = 20  # maximum number of extensions of other files that are counted separately


@dataclass(frozen=True)
class UnreadableSample:
    """A sample that cannot be read: its path, its location for messages, and the finding."""

    path: str
    where: str
    finding: Finding


@dataclass
class Found:
    """The files below a folder; paths are relative to it, in no particular order.

    images: files with the extension of an image.
    tables: metadata tables.
    faults: samples that cannot be read.
    ignored: the number of other files, by extension.
    hidden: the number of hidden files and folders; files in hidden folders are not counted.
    loops: the number of links to a folder that contains them.
    """

    images: list[str] = field(default_factory=list)
    tables: list[str] = field(default_factory=list)
    faults: list[UnreadableSample] = field(default_factory=list)
    ignored: Counter[str] = field(default_factory=Counter)
    hidden: int = 0
    loops: int = 0

    def counts(self) -> dict[str, Any]:
        """Return counts for the manifest: a few dozen numbers for any number of files."""
        by_count = sorted(self.ignored.items(), key=lambda item: (-item[1], item[0]))
        ignored = {shown(ending): count for ending, count in by_count[:_NAMED]}
        if rest := sum(count for _, count in by_count[_NAMED:]):
            ignored["others"] = rest
        return {"files": len(self.images), "hidden": self.hidden, "ignored": ignored, "loops": self.loops}

    def fail(self, path: str, detail: str) -> None:
        """Add a sample that cannot be read."""
        self.faults.append(UnreadableSample(path, shown(path), Finding(Reason.UNREADABLE, detail)))


def split_ending(path: str) -> tuple[str, str]:
    """Return a path without its extension, and the extension in lower case without its dot, or ""."""
    stem, dot, ending = path.rpartition(".")
    if not dot or "/" in ending or not stem or stem.endswith("/"):
        return path, ""
    return stem, ending.lower()


def walk(root: bytes, captions: bool, tables: bool) -> Found:
    """Return the files below a folder; links to files and folders are followed.

    Args:
        root: the folder.
        captions: whether KEY.txt beside an image is its caption, and not counted as another file.
        tables: whether metadata tables are read, and not counted as other files.

    Raises:
        OSError: the folder itself cannot be listed.
    """
    found = Found()
    # For each pending folder: its path and the (device, inode) of the folders that contain it.
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
    """Add the files of one folder; return its subfolders, None where it is empty."""
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
            # A link with any extension: it may have led to a folder of images.
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
