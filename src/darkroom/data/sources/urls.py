"""Images at the addresses in a table, downloaded with img2dataset.

They are kept in `.darkroom/downloads/urls/KEY/`, where KEY is a hash of the addresses and the download settings, so
that other changes download nothing again. Only this folder holds full addresses: lists contain them without user name,
password and query.
"""

import hashlib
import json
import os
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from darkroom.artifacts.atomic import require_writable
from darkroom.data.damage import DamageError, Finding, Reason
from darkroom.data.sample import Entry, Raw
from darkroom.data.sources.captions import caption_of, label_of
from darkroom.data.sources.downloads import SHARD, download, error_category, shard, statistics
from darkroom.data.tars import DamagedTarError, members
from darkroom.errors import DarkroomError
from darkroom.params.parts import Urls as Settings
from darkroom.params.run import Run


def read_table(path: Path, columns: Sequence[str], start: int = 0, stop: int | None = None) -> pa.Table:
    """Return some columns of the rows `start` to `stop` (not included) of a table, as texts, bytes or numbers.

    Of a parquet file only the row groups with these rows are read, since a table may hold gigabytes.

    Raises:
        DarkroomError: the table is missing, neither parquet nor csv, or lacks a column; then the message lists the
            columns that it has.
    """
    kind = path.suffix.lower()
    if kind not in (".parquet", ".csv"):
        raise DarkroomError(f"{path}: the path of a part with the source `urls` must be a file .parquet or .csv.")
    try:
        if kind == ".csv":
            with pa.csv.open_csv(path) as reader:
                schema = reader.schema
        else:
            schema = pq.read_schema(path)
        if missing := [f"`{column}`" for column in columns if column not in schema.names]:
            names = ", ".join(f"`{name}`" for name in schema.names)
            raise DarkroomError(f"{path} has no column {missing[0]}: it has {names}. See `urls` in params.yaml.")
        for column in columns:
            if pa.types.is_nested(kind_of := schema.field(column).type):
                raise DarkroomError(f"{path}: `{column}` holds {kind_of}, and must hold texts or numbers.")
        if kind == ".csv":
            # As bytes: a label may be 007, and texts need not be UTF-8.
            kinds = {name: pa.binary() for name in columns}
            convert = pa.csv.ConvertOptions(include_columns=columns, column_types=kinds)
            table = pa.csv.read_csv(path, None, pa.csv.ParseOptions(newlines_in_values=True), convert)
            return table.slice(start, None if stop is None else stop - start)
        return _row_groups(pq.ParquetFile(path), columns, start, stop)
    except FileNotFoundError as error:
        raise DarkroomError(f"{path}, a table of addresses, is missing: see `path` of the part.") from error
    except (pa.ArrowInvalid, OSError) as error:
        raise DarkroomError(f"{path} cannot be read as a table: {' '.join(str(error).split())[:300]}") from error


def _row_groups(file: pq.ParquetFile, columns: Sequence[str], start: int, stop: int | None) -> pa.Table:
    """Return the rows `start` to `stop` (not included) from the row groups that hold them."""
    ends = np.cumsum([file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)], dtype=int)
    stop = int(ends[-1]) if stop is None and len(ends) else stop or 0
    first, last = (int(np.searchsorted(ends, row, side="right")) for row in (start, stop - 1))
    table = file.read_row_groups(range(first, min(last + 1, len(ends))), columns=columns)
    return table.slice(start - (int(ends[first - 1]) if first else 0), max(0, stop - start))


def as_bytes(value: Any) -> bytes | None:
    """Return a value of a table as the bytes of a text; None for no value. Whole numbers have no decimal point."""
    if value is None or isinstance(value, bytes):
        return value or None
    if isinstance(value, float):
        if value != value:
            return None
        value = int(value) if value.is_integer() else value
    return str(value).encode() or None


_SAFE = "%:/?#[]@!$&'()*+,;=~"  # characters with a meaning in an address; others become %XX, as in browsers
_BATCH = 10_000  # addresses in memory while the table is written


@dataclass(frozen=True)
class _Row:
    """The result of a row: the location of its image, or the reason why there is none."""

    tar: str
    place: tuple[int, int] | None  # offset and size in the tar
    finding: Finding | None
    label: bytes | None
    caption: bytes | None


class Urls:
    """Samples `urls-00000000`, … by row of the table, in its order, whatever the order of the downloads."""

    def __init__(self, settings: Settings, path: Path | None, run: Run | None = None) -> None:
        """Read the table; nothing is downloaded yet.

        Args:
            settings: the columns, and the download settings.
            path: the table, parquet or csv.
            run: the program and the number of its processes; None: only images that were downloaded before are read.

        Raises:
            DarkroomError: the table is missing, cannot be read, or lacks a column.
        """
        if path is None:
            raise DarkroomError("the source `urls` reads a table of addresses: give it as the part's `path`.")
        self._settings, self._run = settings, run
        columns = [settings.url_column, settings.label_column, settings.caption_column]
        self._path, self._columns = path, list(dict.fromkeys(column for column in columns if column))
        is_csv = path.suffix.lower() == ".csv"
        self._size = len(read_table(path, self._columns, 0, None if is_csv else 0))
        if not is_csv:
            self._size = pq.read_metadata(path).num_rows
        self._facts: dict[str, Any] = {}

    def size(self) -> int:
        """Return the number of rows of the table."""
        return self._size

    def entries(self, start: int, stop: int | None) -> Iterator[Entry]:
        """Download the images of the rows `start` to `stop` (not included), then yield these rows.

        Raises:
            DarkroomError: the download fails (`darkroom.data.sources.downloads.download`), or a tar is damaged.
        """
        rows = read_table(self._path, self._columns, start, stop)
        folder = self._folder(rows[self._settings.url_column])
        if self._run is not None:
            program, processes = self._run.img2dataset, self._run.ingest_processes
            download(folder / "urls.parquet", rows.num_rows, folder / "shards", self._settings, program, processes)
        elif not (folder / "shards").is_dir():
            raise DarkroomError(
                "the images of a part with the source `urls` are downloaded by `ingest`: run that first."
            )
        self._facts = statistics(folder / "shards", rows.num_rows)
        return self._listed(rows, start, folder / "shards")

    def _folder(self, addresses: pa.ChunkedArray) -> Path:
        """Return the folder of a download, with the addresses in `urls.parquet`, the input of img2dataset."""
        root = Path(os.environ.get("DVC_ROOT", ".")) / ".darkroom" / "downloads" / "urls"
        require_writable(root / "lock")
        settings = self._settings.model_dump(include={"resize", "encode_format", "retries", "timeout", "disallowed"})
        digest = hashlib.blake2b(json.dumps([settings, SHARD], sort_keys=True).encode(), digest_size=16)
        with tempfile.TemporaryDirectory(dir=root, prefix=".table-") as temporary:
            path = Path(temporary) / "urls.parquet"
            with pq.ParquetWriter(path, pa.schema([("url", pa.string())])) as writer:
                for first in range(0, len(addresses), _BATCH):
                    batch = [_asked(as_bytes(value)) for value in addresses.slice(first, _BATCH).to_pylist()]
                    digest.update(json.dumps(batch).encode())
                    writer.write_table(pa.table({"url": pa.array(batch, pa.string())}))
            folder = root / digest.hexdigest()
            folder.mkdir(exist_ok=True)
            path.replace(folder / "urls.parquet")
        return folder

    def _listed(self, rows: pa.Table, start: int, shards: Path) -> Iterator[Entry]:
        columns = self._settings.url_column, self._settings.label_column, self._settings.caption_column
        for number in range(-(-rows.num_rows // SHARD)):
            path = shard(shards, number)
            images, failed = _images(Path(f"{path}.tar")), _failed(Path(f"{path}.parquet"))
            part = rows.slice(number * SHARD, SHARD)
            values = [part[name].to_pylist() if name else [None] * part.num_rows for name in columns]
            for place, (url, label, caption) in enumerate(zip(*values, strict=True), number * SHARD):
                address = as_bytes(url)
                finding = None if place in images else _unusable(address) or failed.get(place, _NO_OUTCOME)
                row = _Row(f"{path}.tar", images.get(place), finding, as_bytes(label), as_bytes(caption))
                where = f"row {start + place}: {_public(address)}"
                yield Entry(f"urls-{start + place:08d}", where, row)

    def read(self, entry: Entry) -> Raw:
        """Return the downloaded image.

        Raises:
            DamageError: the image was not downloaded, or its tar has been cut since.
        """
        row = entry.payload
        if row.finding is not None:
            raise DamageError(row.finding.reason, row.finding.detail)
        offset, size = row.place
        with Path(row.tar).open("rb") as file:
            data = os.pread(file.fileno(), size, offset)
        if len(data) != size:
            raise DamageError(Reason.DAMAGED_SHARD, "the tar is shorter than it was")
        label, caption = None, None
        findings: tuple[Finding, ...] = ()
        if self._settings.caption_column:
            caption, findings = caption_of(row.caption or b"")
        if self._settings.label_column:
            label = label_of((row.label or b"").decode("utf-8", "backslashreplace"))
            if label is None:
                findings += (Finding(Reason.LABEL_MISSING, "the column is empty"),)
        return Raw(data, label, caption, identity=data, findings=findings)

    def metadata(self) -> dict[str, Any]:
        """Return counts: addresses, downloaded images, and failures by reason."""
        return self._facts

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without the table, which `read` does not need."""
        return {"_settings": self._settings}


_NO_OUTCOME = Finding(Reason.DOWNLOAD_FAILED, "img2dataset says nothing of it")


def _asked(address: bytes | None) -> str:
    """Return an address as it is requested; empty where it is refused: file: would read the files of this machine."""
    if address is None or _unusable(address):
        return ""
    return quote(address.strip(), safe=_SAFE)


def _unusable(address: bytes | None) -> Finding | None:
    if address is None or not address.strip():
        return Finding(Reason.MISSING, "the row has no address")
    if not address.strip().lower().startswith((b"http://", b"https://")):
        return Finding(Reason.DOWNLOAD_FAILED, "not an address of http or https")
    return None


def _public(address: bytes | None) -> str:
    """Return the host and path of an address: user name, password and query may be secret."""
    try:
        parts = urlsplit((address or b"").decode("utf-8", "replace").strip())
        port = f":{parts.port}" if parts.port else ""
        return f"{parts.scheme}://{parts.hostname}{port}{parts.path}" if parts.hostname else "no address"
    except ValueError:
        return "no address"


def _images(tar: Path) -> dict[int, tuple[int, int]]:
    """Return offset and size of the images in a tar of img2dataset, by row of its table.

    Raises:
        DarkroomError: the tar is damaged.
    """
    try:
        found = [(member.name.partition("."), member.offset, member.size) for member in members(tar, str(tar))]
    except (OSError, DamagedTarError) as error:
        raise DarkroomError(
            f"{tar} is damaged ({error}): remove its folder, and its images are downloaded again."
        ) from error
    return {int(key): (offset, size) for (key, _, ending), offset, size in found if ending != "json"}


def _failed(sidecar: Path) -> dict[int, Finding]:
    """Return the finding of each failed download, by row of the table."""
    table = pq.read_table(sidecar, columns=["key", "status", "error_message"]).to_pylist()
    return {
        int(row["key"]): Finding(Reason.DOWNLOAD_FAILED, error_category(row["error_message"] or ""))
        for row in table
        if row["status"] != "success"
    }
