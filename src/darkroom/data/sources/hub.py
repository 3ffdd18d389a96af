"""Stream data sets of the Hugging Face Hub, by name or from a folder in the Hub's layout.

The package `datasets` reads them (https://huggingface.co/docs/datasets): parquet files, image folders, tars and other
formats. It runs no code of a data set. Images are passed on as stored bytes.
"""

import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

from darkroom.data.damage import DamageError, Finding, Reason
from darkroom.data.sample import Entry, Raw
from darkroom.data.sources.captions import SPEAKER, answer_of, caption_of, label_of
from darkroom.errors import DarkroomError
from darkroom.params.parts import Hub as Settings


class Hub:
    """Samples `hub-00000000`, … by row of a split, in its order."""

    def __init__(self, settings: Settings, path: Path | None = None, column: str = "") -> None:
        """Open the split; no image is read yet.

        Raises:
            DarkroomError: `datasets` is not installed, the data set cannot be reached or does not exist, or it has no
                such configuration, split or column; the message then lists the available ones.
        """
        self._stream, self._facts, self._files = open_stream(settings, path, column)
        self._group = column
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
        rows = self._stream.skip(start)
        rows = iter(rows if stop is None else rows.take(stop - start))
        number = start
        while True:
            try:
                row = next(rows, None)
            except Exception as error:  # errors of pyarrow, the network or fsspec, by the format of the data set
                raise DarkroomError(
                    f"{self._files.name}: row {number:,} of the split `{self._facts['split']}` and those after it "
                    f"cannot be read: {_reason(error)}"
                ) from error
            if row is None:
                break
            yield self._entry(number, row)
            number += 1
        if number == start or (stop is not None and number < stop):
            size = f"{number:,}" if number > start else f"at most {start:,}"
            raise DarkroomError(
                f"the split `{self._facts['split']}` of {self._files.name} has {size} rows, but the part requests rows "
                f"{start:,} to {'the end' if stop is None else f'{stop:,}'}: change its start and stop."
            )

    def _entry(self, number: int, row: dict[str, Any]) -> Entry:
        value = row[self._image] or {}
        image, name = value.get("bytes"), value.get("path")
        label, of_label = self._label_of(row[self._label]) if self._label else (None, ())
        caption, of_caption = caption_of(first_text(row[self._caption]).encode()) if self._caption else (None, ())
        location = f"row {number}: {self._files.short(name)}" if name else f"row {number}"
        image = name if image is None else image
        value = row[self._group] if self._group else None
        group = None if value is None else str(value)
        payload = image, label, caption, (*of_label, *of_caption), group
        return Entry(f"hub-{number:08d}", location, payload, name=self._files.short(name) if name else None)

    def read(self, entry: Entry) -> Raw:
        """Return the image of a row as it is stored.

        Raises:
            DamageError: the row has no image, or its file cannot be read or does not belong to the data set.
            DarkroomError: the Hub can no longer be reached.
        """
        image, label, caption, findings, group = entry.payload
        if image is None:
            raise DamageError(Reason.MISSING, "the row has no image")
        data = self._files.read(image) if isinstance(image, str) else image
        return Raw(data, label, caption, data, findings, group=group)

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


@dataclass(frozen=True)
class Files:
    """The files of one data set. Other files are refused: a table could name any file of this machine as an image.

    name: the name of the data set, for messages.
    root: the prefix of the addresses of its files: an absolute folder, or hf://datasets/NAME@COMMIT.
    """

    name: str
    root: str

    @property
    def _local(self) -> bool:
        return not self.root.startswith("hf://")

    def short(self, address: str) -> str:
        """Return an address relative to the data set, or its file name where it is outside of the data set."""
        inner, _, archive = address.partition("::")
        own = self._own(archive or inner)
        if own is None:
            return PurePosixPath(inner).name
        return f"{own}: {inner.removeprefix('zip://')}" if archive else own

    def _own(self, address: str) -> str | None:
        path = os.path.normpath(Path(address).absolute()) if self._local else address
        start = self.root.rstrip("/") + "/"
        return path[len(start) :] if path.startswith(start) and ".." not in path.split("/") else None

    def read(self, address: str) -> bytes:
        """Return the content of a file, `zip://MEMBER::ARCHIVE` for one in an archive.

        Raises:
            DamageError: the file cannot be read, or is not a file of the data set.
            DarkroomError: the Hub cannot be reached.
        """
        import fsspec

        inner, _, archive = address.partition("::")
        if "::" in archive or (archive and not inner.startswith("zip://")) or self._own(archive or inner) is None:
            raise DamageError(Reason.UNREADABLE, "the row has no bytes, and its path is outside of the data set")
        try:
            with fsspec.open(address, "rb") as file:
                return file.read()
        except FileNotFoundError as error:
            raise DamageError(Reason.MISSING, "the row names a file that is not there") from error
        except Exception as error:  # errors of zipfile or the system; on the Hub also of the network
            if not self._local:
                raise DarkroomError(f"{address} cannot be read: {_reason(error)}") from error
            raise DamageError(Reason.UNREADABLE, type(error).__name__) from error


_TIMEOUT = 20  # seconds for the Hub's first answer


def open_stream(settings: Settings, path: Path | None, group: str = "") -> tuple[Any, dict[str, Any], Files]:
    """Return the split as a `datasets.IterableDataset` of undecoded images, its metadata, and its files.

    Raises:
        DarkroomError: see `Hub`.
    """
    stream, metadata, files = open_split(settings, path)
    import datasets

    _check(settings, stream.features, files.name)
    if group and group not in stream.features:
        raise DarkroomError(
            f"{files.name} has no column `{group}`, set by `ingest.group`, only {_named(stream.features)}."
        )
    columns = [column for column in (settings.image, settings.label, settings.caption, group) if column]
    stream = stream.select_columns(list(dict.fromkeys(columns)))
    return stream.cast_column(settings.image, datasets.Image(decode=False)), metadata, files


def open_split(settings: Settings, path: Path | None) -> tuple[Any, dict[str, Any], Files]:
    """Return the split with all its columns, its metadata, and its files.

    Raises:
        DarkroomError: see `Hub`; columns are not checked.
    """
    try:
        import datasets
    except ImportError as error:
        raise DarkroomError(
            "parts with the source `hub` need the package `datasets`, which is not installed: install it with "
            "`pip install -e '.[hub]'`."
        ) from error
    datasets.disable_progress_bars()
    chosen = {"configuration": settings.configuration, "split": settings.split}
    if path is not None:
        if not path.is_dir():
            raise DarkroomError(
                f"{path}: the path of a part with the source `hub` must be a folder in the Hub's layout."
            )
        target, commit = str(path.absolute()), None
        metadata, files = chosen, Files(str(path), target)
    else:
        target, commit = settings.dataset, _commit(settings)
        metadata = {"dataset": target, "revision": commit, **chosen}
        files = Files(target, f"hf://datasets/{target}@{commit}")
    splits = _load(settings, files.name, target, commit)
    if settings.split not in splits:
        raise DarkroomError(f"{files.name} has no split `{settings.split}`, only {_named(splits)}: set `hub.split`.")
    stream = splits[settings.split]
    if stream.features is None:  # some formats do not declare their columns: then they follow from the first rows
        stream = stream._resolve_features()
    return stream, metadata, files


def _named(names: Any) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _commit(settings: Settings) -> str:
    """Return the commit of the revision of a data set, by default of its newest one."""
    from huggingface_hub import HfApi

    name = settings.dataset
    if Path(name).exists():  # `datasets` would read it in place of the Hub's, and DVC would not know
        raise DarkroomError(f"`hub.dataset` is {name}, which is also a folder here: set it as the part's `path`.")
    try:
        commit = HfApi().dataset_info(name, revision=settings.revision, timeout=_TIMEOUT).sha
    except Exception as error:  # errors of any library that the Hub's client uses
        raise DarkroomError(
            f"{name} cannot be read from the Hugging Face Hub: {_reason(error)}. Check `hub.dataset`, OWNER/NAME, and "
            "`hub.revision`; a private or gated data set needs your token in the environment variable HF_TOKEN. "
            "Without internet, copy the data set to a folder and set it as the part's `path`."
        ) from error
    assert commit is not None  # the Hub always returns it
    return commit


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


def _load(settings: Settings, name: str, target: str, commit: str | None) -> Any:
    """Return the streams of all splits of a configuration, by name."""
    import datasets

    try:
        # A new cache: from the usual one `datasets` takes any version when a request to the Hub fails.
        with tempfile.TemporaryDirectory() as cache:
            return datasets.load_dataset(
                target, settings.configuration, revision=commit, streaming=True, cache_dir=cache
            )
    except Exception as error:  # also for an unknown configuration; the message lists the available ones
        gated = (
            f". If it is gated, accept its terms on https://huggingface.co/datasets/{name}, and put your token "
            "into the environment variable HF_TOKEN."
        )
        raise DarkroomError(
            f"{name}, `hub.configuration` {settings.configuration or 'null'}, cannot be read as a data set: "
            f"{_reason(error)}{gated if commit else ''}"
        ) from error


def _check(settings: Settings, features: Any, name: str) -> None:
    """Check that the columns exist and have the right types."""
    import datasets

    holds: dict[str, Callable[[Any], bool]] = {
        "image": lambda feature: (
            isinstance(feature, datasets.Image)
            or _dtype(feature).endswith("binary")
            or (isinstance(feature, dict) and {"bytes", "path"} >= set(feature))
        ),
        "label": lambda feature: _dtype(feature).startswith(("string", "large_string", "int", "uint", "bool")),
        "caption": holds_texts,
    }
    for key, fits in holds.items():
        if (column := getattr(settings, key)) is None:
            continue
        if column not in features:
            raise DarkroomError(f"{name} has no column `{column}`, set by `hub.{key}`, only {_named(features)}.")
        if not fits(features[column]):
            raise DarkroomError(
                f"{name}: column `{column}`, set by `hub.{key}`, is {features[column]}, which holds no {key}s."
            )


def _dtype(feature: Any) -> str:
    return str(getattr(feature, "dtype", ""))


def holds_texts(feature: Any) -> bool:
    """Return whether a column holds texts, lists of them, or conversations."""
    inner = getattr(feature, "feature", feature)  # of a list
    if isinstance(inner, dict):
        return bool(inner.keys() & SPEAKER)
    return _dtype(inner).startswith(("string", "large_string"))
