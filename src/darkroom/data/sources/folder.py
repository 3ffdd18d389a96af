"""Read image files in a folder, flat, in class folders, or nested, with captions and labels in files or tables."""

import errno
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from darkroom.data.damage import DamageError, Finding, Reason
from darkroom.data.keys import encoded, key_of, shown
from darkroom.data.sample import Entry, Raw
from darkroom.data.sources.captions import LARGEST, LONGEST, caption_of, label_of, split_repeats
from darkroom.data.sources.metadata import path_in, read_metadata
from darkroom.data.sources.walk import ENDINGS, UnreadableSample, beside, split_ending, walk
from darkroom.errors import DarkroomError
from darkroom.params.parts import Folder as Settings


class Listing(NamedTuple):
    """The content of a folder.

    items: the paths of the images, and samples that cannot be read, in ascending order of their keys.
    metadata: counts for the manifest.
    annotations: label, caption and group from tables, by the path of the image.
    """

    items: list[str | UnreadableSample]
    metadata: dict[str, Any]
    annotations: Mapping[str, tuple[str | None, ...]]


class Folder:
    """Samples whose keys follow from the paths of the files relative to the folder, so the folder may be moved."""

    def __init__(self, settings: Settings, path: Path | None, column: str = "") -> None:
        """Open a folder; nothing is listed yet.

        Raises:
            DarkroomError: there is no such folder.
        """
        assert path is not None  # `Part` requires it
        if not path.is_dir():
            problem = "is not a folder" if path.exists() else "does not exist"
            hint = "; `~` is not expanded, so write the full path" if path.parts[:1] == ("~",) else ""
            raise DarkroomError(f"the part's `path` in params.yaml, {path}, {problem}: use a folder of images{hint}.")
        self._settings, self._path, self._column = settings, path, column
        self._classes = None if settings.classes is None else frozenset(settings.classes)

    def size(self) -> int:
        """Return the number of image files, and of named samples that cannot be read.

        Raises:
            DarkroomError: the folder has no images, or a table cannot be used.
        """
        return len(self._listing.items)

    def entries(self, start: int, stop: int | None) -> Iterator[Entry]:
        """Yield the samples `start` to `stop` (not included), in ascending order of their keys."""
        listing = self._listing
        for number in range(start, self.size() if stop is None else min(stop, self.size())):
            item = listing.items[number]
            if isinstance(item, UnreadableSample):
                yield Entry(_key(item), item.where, item.finding)
            else:
                texts = listing.annotations.get(item, (None, None, None))
                yield Entry(_key(item), shown(item), (item, *texts), name=shown(item))

    def read(self, entry: Entry) -> Raw:
        """Return the bytes of a file, with its label and caption from its folder, a text file next to it, or a table.

        Raises:
            DamageError: the file cannot be read.
        """
        if isinstance(entry.payload, Finding):
            raise DamageError(entry.payload.reason, entry.payload.detail)
        path, named_label, named_caption, group = entry.payload
        try:
            data = _content(path_in(self._path, path), LARGEST)
        except OSError as error:
            raise DamageError(Reason.UNREADABLE, error.strerror or type(error).__name__) from error
        label, of_label = self._label(path, named_label)
        caption, of_caption = self._caption(path, named_caption)
        return Raw(data, label, caption, identity=data, findings=(*of_label, *of_caption), group=group)

    def metadata(self) -> dict[str, Any]:
        """Return counts: image files, ignored files and folders, tables and their rows."""
        return self._listing.metadata

    def __getstate__(self) -> dict[str, Any]:
        # Entries hold all that `read` needs in another process.
        return {name: value for name, value in vars(self).items() if name != "_listing"}

    @cached_property
    def _listing(self) -> Listing:
        settings = self._settings
        columns = {"label": settings.label_column, "caption": settings.caption_column}
        table_columns = {name: column for name, column in columns.items() if getattr(settings, name) == "metadata"}
        table_columns |= {"group": self._column} if self._column else {}
        try:
            files = walk(os.fsencode(self._path), captions=settings.caption == "txt", tables=bool(table_columns))
        except OSError as error:
            raise DarkroomError(f"the folder {self._path} cannot be listed: {error.strerror}.") from error
        if not files.images and not files.faults:
            ignored = files.counts()["ignored"].items()
            other_files = ", ".join(f"{count:,} {ending or 'without ending'}" for ending, count in ignored)
            raise DarkroomError(
                f"the folder {self._path} has no image files (endings: {', '.join(sorted(ENDINGS))}), but "
                f"{other_files or 'no other files'}: set the part's `path` to the folder of the images."
            )
        items: list[str | UnreadableSample] = [*files.images, *files.faults]
        if not table_columns:
            return Listing(sorted(items, key=_order), files.counts(), {})
        metadata = read_metadata(self._path, files, table_columns)
        items += metadata.faults
        return Listing(sorted(items, key=_order), files.counts(), metadata.annotations)

    def _label(self, path: str, named: str | None) -> tuple[str | None, Iterable[Finding]]:
        folders = path.split("/")[:-1]
        match self._settings.label:
            case "none":
                return None, ()
            case "parent":
                label = folders[-1] if folders else None
            case "top":
                label = folders[0] if folders else None
            case _:
                label = named
        if label is not None and self._settings.repeats and self._settings.label != "metadata":
            label = split_repeats(label)[1]
        label = None if label is None else label_of(shown(label))
        if label is None:
            reason = (
                "no table gives one" if self._settings.label == "metadata" else "the file lies in no folder of a class"
            )
            return None, [Finding(Reason.LABEL_MISSING, reason)]
        if self._classes is not None and label not in self._classes:
            return label, [Finding(Reason.LABEL_OUT_OF_RANGE, label)]
        return label, ()

    def _caption(self, path: str, named: str | None) -> tuple[str | None, Iterable[Finding]]:
        match self._settings.caption:
            case "none":
                return None, ()
            case "txt":
                return self._beside(path)
            case _:
                if named is None:
                    return None, [Finding(Reason.CAPTION_MISSING, "no table gives one")]
                return caption_of(encoded(named))

    def _beside(self, path: str) -> tuple[str | None, Iterable[Finding]]:
        """Return the caption in the first text file next to an image, and findings."""
        for text in beside(path):
            try:
                return caption_of(_content(path_in(self._path, text), LONGEST))
            except FileNotFoundError:
                continue
            except OSError as error:
                return None, [Finding(Reason.CAPTION_MISSING, f"its file cannot be read: {error.strerror}")]
        return None, [Finding(Reason.CAPTION_MISSING, "there is no .txt or .caption beside the image")]


def _content(path: Path, limit: int) -> bytes:
    if not stat.S_ISREG(path.stat().st_mode):  # reading a pipe would wait for ever
        raise OSError(errno.EINVAL, "not a regular file")
    with path.open("rb") as file:
        if (size := os.fstat(file.fileno()).st_size) > limit:
            raise DamageError(Reason.BOMB, f"a {path.suffix[1:].lower()} of {size:,} bytes")
        return file.read()


def _key(item: str | UnreadableSample) -> str:
    return key_of(split_ending(item if isinstance(item, str) else item.path)[0])


def _order(item: str | UnreadableSample) -> tuple[str, str, str]:
    # A file comes before the rows that name it again.
    return (_key(item), item, "") if isinstance(item, str) else (_key(item), item.path, item.where)
