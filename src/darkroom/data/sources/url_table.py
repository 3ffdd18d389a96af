"""Tables of addresses: parquet, or csv with column names in the first line."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from darkroom.errors import DarkroomError


class Table:
    """A table with some columns selected, as texts, bytes or numbers."""

    def __init__(self, path: Path, columns: Sequence[str]) -> None:
        """Open a table; of parquet no row is read yet.

        Raises:
            DarkroomError: the table is missing, neither parquet nor csv, or lacks a column; then the message lists the
                columns that it has.
        """
        self._path, self._columns = path, list(columns)
        self._csv: pa.Table | None = None
        if path.suffix.lower() not in (".parquet", ".csv"):
            raise DarkroomError(f"{path}: the path of a part with the source `urls` must be a file .parquet or .csv.")
        try:
            if path.suffix.lower() == ".csv":
                with pa.csv.open_csv(path) as reader:
                    fields = reader.schema
                self._require(fields)
                self._csv = self._read_csv()
                self.rows = self._csv.num_rows
            else:
                with pq.ParquetFile(path) as file:
                    self._require(file.schema_arrow)
                    self.rows = file.metadata.num_rows
        except FileNotFoundError as error:
            raise DarkroomError(f"{path}, a table of addresses, is missing: see `path` of the part.") from error
        except (pa.ArrowInvalid, OSError) as error:
            raise DarkroomError(f"{path} cannot be read as a table: {' '.join(str(error).split())[:300]}") from error

    def _require(self, schema: pa.Schema) -> None:
        for column in self._columns:
            if column not in schema.names:
                names = ", ".join(f"`{name}`" for name in schema.names)
                raise DarkroomError(
                    f"{self._path} has no column `{column}`: it has {names}. See `urls` in params.yaml."
                )
            if pa.types.is_nested(schema.field(column).type):
                raise DarkroomError(
                    f"{self._path}: the column `{column}` holds {schema.field(column).type}, and a text or a number is "
                    "needed."
                )

    def _read_csv(self) -> pa.Table:
        # As bytes: a label may be 007, and texts need not be UTF-8.
        convert = pa.csv.ConvertOptions(
            include_columns=self._columns, column_types={name: pa.binary() for name in self._columns}
        )
        return pa.csv.read_csv(
            self._path, parse_options=pa.csv.ParseOptions(newlines_in_values=True), convert_options=convert
        )

    def slice(self, start: int, stop: int) -> pa.Table:
        """Return some rows; of parquet only their row groups are read."""
        if self._csv is not None:
            return self._csv.slice(start, stop - start)
        with pq.ParquetFile(self._path) as file:
            groups, first, at = [], 0, 0
            for number in range(file.metadata.num_row_groups):
                end = at + file.metadata.row_group(number).num_rows
                if end <= start:
                    first = end
                elif at < stop:
                    groups.append(number)
                at = end
            return file.read_row_groups(groups, columns=self._columns).slice(start - first, stop - start)


def as_bytes(value: Any) -> bytes | None:
    """Return a value of a table as the bytes of a text; None for no value. Whole numbers have no decimal point."""
    if value is None or isinstance(value, bytes):
        return value or None
    if isinstance(value, float):
        if value != value:
            return None
        value = int(value) if value.is_integer() else value
    return str(value).encode() or None
