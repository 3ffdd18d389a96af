"""Data sets of the Hugging Face Hub, streamed: by name, or from a folder in the Hub's layout.

The package `datasets` reads them (https://huggingface.co/docs/datasets): parquet files, image folders, tars and other
formats. It runs no code of a data set. Images are passed on as stored bytes.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from darkroom.data.damage import DamageError, Finding, Reason
from darkroom.data.sample import Entry, Raw
from darkroom.data.sources.captions import answer_of, caption_of, label_of
from darkroom.data.sources.hub_open import content, open_stream
from darkroom.errors import DarkroomError
from darkroom.params.parts import Hub as Settings


@dataclass(frozen=True)
class _Row:
    """A row as it is sent to the process that reads it; `image` is the content or the address of a file."""

    image: bytes | str | None
    extension: str | None
    label: str | None
    caption: str | None
    findings: tuple[Finding, ...]


class Hub:
    """Samples `hub-00000000`, … by row of a split, in its order."""

    def __init__(self, settings: Settings, path: Path | None = None) -> None:
        """Open the split; no image is read yet.

        Args:
            settings: data set, configuration, split, revision and columns.
            path: a folder in the Hub's layout; None: the data set is on the Hub.

        Raises:
            DarkroomError: `datasets` is not installed, the data set cannot be reached or does not exist, or it has no
                such configuration, split or column; then the message lists those that it has.
        """
        self._stream, self._facts, self._files = open_stream(settings, path)
        self._image, self._label, self._caption = settings.image, settings.label, settings.caption
        self._label_of = partial(_label, self._stream.features.get(settings.label), settings.label)

    def size(self) -> int | None:
        """Return None: the size in the metadata of a data set may be wrong."""
        return None

    def entries(self, start: int, stop: int | None) -> Iterator[Entry]:
        """Yield the rows `start` to `stop` (not included); rows before `start` are read too, and skipped.

        Raises:
            DarkroomError: the split ends before `stop`, or before `start`; or a row cannot be read.
        """
        number = start
        for row in self._rows(start, stop):
            yield self._entry(number, row)
            number += 1
        if number == start or (stop is not None and number < stop):
            most = f"{number:,}" if number > start else f"no more than {start:,}"
            raise DarkroomError(
                f"the split `{self._facts['split']}` of {self._files.name} has {most} rows, and the part asks for rows "
                f"{start:,} to {'the end' if stop is None else f'{stop:,}'}: change its start and stop."
            )

    def _rows(self, start: int, stop: int | None) -> Iterator[dict[str, Any]]:
        rows = self._stream.skip(start)
        rows = iter(rows if stop is None else rows.take(stop - start))
        number = start
        while True:
            try:
                row = next(rows, None)
            except Exception as error:  # errors of pyarrow, the network or fsspec, by the format of the data set
                raise DarkroomError(
                    f"{self._files.name}: row {number:,} of the split `{self._facts['split']}` and those after it "
                    f"cannot be read: {type(error).__name__}: {' '.join(str(error).split())[:300]}"
                ) from error
            if row is None:
                return
            yield row
            number += 1

    def _entry(self, number: int, row: dict[str, Any]) -> Entry:
        image, name = content(row[self._image])
        label, of_label = self._label_of(row[self._label]) if self._label else (None, ())
        caption, of_caption = caption_of(first_text(row[self._caption]).encode()) if self._caption else (None, ())
        short = self._files.short(name) if name else ""
        extension = Path(short).suffix[1:] or None
        return Entry(
            f"hub-{number:08d}",
            f"row {number}" + (f": {short}" if short else ""),
            _Row(image, extension, label, caption, (*of_label, *of_caption)),
        )

    def read(self, entry: Entry) -> Raw:
        """Return the image of a row as it is stored.

        Raises:
            DamageError: the row has no image, or its file cannot be read or does not belong to the data set.
            DarkroomError: the Hub cannot be reached any more.
        """
        row = entry.payload
        if row.image is None:
            raise DamageError(Reason.MISSING, "the row has no image")
        data = self._files.read(row.image) if isinstance(row.image, str) else row.image
        return Raw(data, row.label, row.caption, row.extension, data, row.findings)

    def metadata(self) -> dict[str, Any]:
        """Return dataset and revision (the commit; of the Hub only), configuration and split."""
        return self._facts

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without the stream, which `read` does not need."""
        return {"_files": self._files}


def _label(feature: Any, column: str | None, value: Any) -> tuple[str | None, tuple[Finding, ...]]:
    """Return the label in a value of a column, the name of the class where the column has names, and findings."""
    names = getattr(feature, "names", None)
    if names is not None and value is not None and value != -1:  # -1 marks images without a label in test sets
        if 0 <= value < len(names):
            return names[value], ()
        return str(value), (Finding(Reason.LABEL_OUT_OF_RANGE, f"{value} of {len(names)} classes"),)
    text = None if value is None or names is not None else label_of(str(value))
    return text, () if text else (Finding(Reason.LABEL_MISSING, f"the column {column} is empty"),)


def first_text(value: Any) -> str:
    """Return the text in a value of a column, the first of several, or the answer of a conversation; "": none."""
    value = answer_of(value)
    text = next(iter(value), None) if isinstance(value, list) else value
    return text if isinstance(text, str) else ""
