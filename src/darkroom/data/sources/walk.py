"""Find the image files below a folder, and count all other files, so that nothing is missing silently.

The result does not depend on the locale, or on the order in which the file system lists a folder.
"""

import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from darkroom.data.damage import Finding, Reason
from darkroom.data.decoding import FORMATS
from darkroom.data.keys import is_utf8, shown

# With unsupported formats (HEIF, JPEG XL, TGA): their files are quarantined, not ignored.
ENDINGS = frozenset({"heic", "heif", "jxl", "tga"}).union(*(format.extensions for format in FORMATS.values()))
TABLES = ("metadata.jsonl", "metadata.csv", "metadata.parquet")
CAPTIONS = ("txt", "caption")  # endings of the captions next to images; the first existing one counts
# Folders that macOS, Windows, Linux and network storages add, in lower case, for thumbnails and deleted files.
_SYSTEM = frozenset(
    {
        "__macosx",
        "network trash folder",
        "temporary items",
        "$recycle.bin",
        "recycler",
        "system volume information",
        "lost+found",
        "@eadir",
        "@__thumb",
        "@recycle",
        "@recently-snapshot",
        "#recycle",
        "#snapshot",
    }
)
_NAMED = 20  # maximum number of extensions of other files that are counted separately


@dataclass(frozen=True)
class UnreadableSample:
    """A sample that cannot be read: its path, its location for messages, and the finding."""

    path: str
    where: str
    finding: Finding


@dataclass
class FolderListing:
    """The files below a folder; paths are relative to it, in no particular order.

    images: files with the extension of an image.
    tables: metadata tables.
    faults: samples that cannot be read.
    ignored: the number of other files, by extension.
    aside: the number of files that are skipped by their name: `hidden` ones, with those in hidden folders such as
        `.git`, and those in each folder that systems add, such as `@eaDir`, at any depth.
    aside_images: the number of these with an image's extension.
    loops: the number of links to a folder that contains them.
    overruled: the number of captions in KEY.caption next to a KEY.txt; they count among the other files, too.
    """

    images: list[str] = field(default_factory=list)
    tables: list[str] = field(default_factory=list)
    faults: list[UnreadableSample] = field(default_factory=list)
    ignored: Counter[str] = field(default_factory=Counter)
    aside: Counter[str] = field(default_factory=Counter)
    aside_images: int = 0
    loops: int = 0
    overruled: int = 0

    def counts(self) -> dict[str, Any]:
        """Return counts for the manifest: a few dozen numbers for any number of files."""
        by_count = sorted(self.ignored.items(), key=lambda item: (-item[1], item[0]))
        ignored = {shown(ending): count for ending, count in by_count[:_NAMED]}
        if other_count := sum(count for _, count in by_count[_NAMED:]):
            ignored["others"] = other_count
        return {
            "files": len(self.images),
            "aside": {shown(name): count for name, count in sorted(self.aside.items())},
            "aside_images": self.aside_images,
            "ignored": ignored,
            "loops": self.loops,
        }

    def fail(self, path: str, detail: str, reason: Reason = Reason.UNREADABLE) -> None:
        """Add a sample that cannot be read."""
        self.faults.append(UnreadableSample(path, shown(path), Finding(reason, detail)))


def split_ending(path: str) -> tuple[str, str]:
    """Return a path without its extension, and the extension in lower case without its dot, or ""."""
    stem, dot, ending = path.rpartition(".")
    if not dot or "/" in ending or not stem or stem.endswith("/"):
        return path, ""
    return stem, ending.lower()


def beside(path: str) -> list[str]:
    """Return the paths of the caption of an image, the first that exists counts: photo.txt, .caption, photo.jpg.txt."""
    spelled = [each for ending in CAPTIONS for each in (ending, ending.upper(), ending.capitalize())]
    return [f"{stem}.{ending}" for stem in (split_ending(path)[0], path) for ending in spelled]


def walk(root: bytes, captions: bool, tables: bool) -> FolderListing:
    """Return the files below a folder; links to files and folders are followed.

    With `captions`, KEY.txt, KEY.caption or KEY.png.txt next to KEY.png is its caption, and no other file; with
    `tables`, metadata tables are read, and not counted as other files.

    Raises:
        OSError: the folder itself cannot be listed.
    """
    files = FolderListing()
    # For each pending folder: its path and the (device, inode) of the folders that contain it.
    waiting: list[tuple[str, tuple[tuple[int, int], ...]]] = [("", ())]
    while waiting:
        folder, above = waiting.pop()
        full = root + b"/" + folder.encode("utf-8", "surrogateescape")
        try:
            status = os.stat(full)  # noqa: PTH116, a Path takes no bytes
            identity = status.st_dev, status.st_ino
            if identity in above:
                files.loops += 1
                continue
            with os.scandir(full) as listing:
                within = _look(listing, f"{folder}/" if folder else "", files, captions, tables)
        except OSError as error:
            if not folder:
                raise
            files.fail(folder, f"the folder cannot be listed: {error.strerror}")
            continue
        if within is None and split_ending(folder)[1] in ENDINGS:
            files.fail(folder, "an empty folder, not a file")
        waiting += [(each, (*above, identity)) for each in within or ()]
    return files


def _look(
    listing: Iterable[os.DirEntry[bytes]], prefix: str, files: FolderListing, captions: bool, tables: bool
) -> list[str] | None:
    """Add the files of a folder and return its subfolders; None if it is empty."""
    folders: list[str] = []
    stems: set[str] = set()  # of images
    texts: set[tuple[str, str]] = set()  # of their captions: the path without its ending, of an image or its stem
    pictures: set[str] = set()  # with their extension
    empty = True
    for entry in listing:
        empty = False
        name = entry.name.decode("utf-8", "surrogateescape")
        path = prefix + name
        is_folder, is_file = _kind(entry)
        if name.startswith(".") or (is_folder and name.lower() in _SYSTEM):
            _pass_over(entry, "hidden" if name.startswith(".") else name, files)
            continue
        stem, ending = split_ending(path)
        if is_folder:
            folders.append(path)
        elif is_file and ending in ENDINGS:
            stems.add(stem)
            pictures.add(path)
            if is_utf8(path):
                files.images.append(path)
            else:
                files.fail(path, "DVC cannot hash it: rename it, or its folder", Reason.NAME_NOT_UTF8)
        elif is_file and tables and name in TABLES:
            files.tables.append(path)
        elif is_file and captions and ending in CAPTIONS:
            texts.add((stem, ending))
        elif not is_file and (entry.is_symlink() or ending in ENDINGS):
            # A link with any extension: it may have led to a folder of images.
            stems.add(stem)
            nowhere = entry.is_symlink() and not os.path.exists(entry.path)  # noqa: PTH110, a Path takes no bytes
            files.fail(path, "a link to nothing" if nowhere else "not a regular file")
        else:
            files.ignored[f".{ending}" if ending else ""] += 1
    text_stems = {stem for stem, _ in texts}
    for text, ending in texts:
        overruled = ending != CAPTIONS[0] and (text, CAPTIONS[0]) in texts
        files.overruled += overruled and (text in stems or text in pictures)
        if overruled or (text not in stems and (text not in pictures or split_ending(text)[0] in text_stems)):
            files.ignored[f".{ending}"] += 1
    return None if empty else folders


def _pass_over(entry: os.DirEntry[bytes], name: str, files: FolderListing) -> None:
    """Count a file or folder that is passed over, and all files in it; links are not followed."""
    names = [entry.name]
    if entry.is_dir(follow_symlinks=False):
        names = [each for _, _, inner in os.walk(entry.path) for each in inner]  # without folders that cannot be listed
    if names:
        files.aside[name] += len(names)
        files.aside_images += sum(map(_is_image, names))


def _is_image(name: bytes) -> bool:
    return split_ending(name.decode("utf-8", "replace").lstrip("."))[1] in ENDINGS


def _kind(entry: os.DirEntry[bytes]) -> tuple[bool, bool]:
    try:
        return entry.is_dir(), entry.is_file()
    except OSError:  # a link that leads to itself
        return False, False


def passed_over(source: Mapping[str, Any]) -> dict[str, Any]:
    """Return the counts that are not 0 of the entry `source` of a part's manifest; see `walk.FolderListing.counts`."""
    return {key: source[key] for key in ("aside", "aside_images", "ignored", "loops") if source.get(key)}


def passed_over_text(counts: Mapping[str, Any]) -> list[str]:
    """Return the counts of `passed_over` as lines for people."""
    lines = []
    if aside := counts.get("aside"):
        images = f"; with an image's ending {counts['aside_images']:,}" if "aside_images" in counts else ""
        lines.append(f"hidden, or in folders of the system: {_listed(aside)}{images}")
    if ignored := counts.get("ignored"):
        lines.append(f"other endings: {_listed(ignored)}")
    if loops := counts.get("loops"):
        lines.append(f"links to a folder that contains them: {loops:,}")
    return lines


def _listed(counts: Mapping[str, int]) -> str:
    by_count = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{name or 'none'} {count:,}" for name, count in by_count)
