"""The list of damaged, repaired or skipped samples: `quarantine.parquet` beside the shards of a part."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from darkroom.artifacts.hashing import sha256_file
from darkroom.artifacts.manifest import ArtifactError, check_file
from darkroom.data.damage import Action, Listed, Reason, counted
from darkroom.errors import DarkroomError

NAME = "quarantine.parquet"
# reason, action: see `darkroom.data.damage`; source: the location of the sample; detail: what was found, as text.
EXCUSED = {Reason.DOWNLOAD_FAILED, Reason.DUPLICATE}
SCHEMA = pa.schema([(name, pa.string()) for name in ("key", "reason", "action", "source", "detail")])


def write_quarantine(folder: Path, rows: Iterable[Listed]) -> dict[str, Any]:
    """Write `folder/quarantine.parquet` and return the entry `quarantine` of the manifest.

    Returns:
        rows: the number of rows; sha256: the hash of the file; and for each action the number of samples by reason.
    """
    listed = list(rows)
    columns = {name: [str(getattr(row, name)) for row in listed] for name in SCHEMA.names}
    pq.write_table(pa.table(columns, schema=SCHEMA), folder / NAME, compression="zstd")
    return {"rows": len(listed), "sha256": sha256_file(folder / NAME), **counted(listed)}


def read_quarantine(folder: Path, manifest: Mapping[str, Any]) -> pa.Table:
    """Return the list in the folder of a part, after checking it against the manifest of the part.

    Raises:
        ArtifactError: missing, damaged, or with another number of rows than in the manifest; the message names the
            file.
    """
    metadata = manifest["quarantine"]
    check_file(folder / NAME, metadata["sha256"])
    table = pq.read_table(folder / NAME, schema=SCHEMA)
    if table.num_rows != metadata["rows"]:
        raise ArtifactError(f"{folder / NAME} has {table.num_rows} rows, and the manifest says {metadata['rows']}.")
    return table


def require_few(
    part: str, rows: Iterable[Listed], seen: int, left_out: int, excused: int, most: float, kept: Path
) -> None:
    """Check that the fraction of quarantined samples of a part is at most `ingest.max_quarantined`.

    Reasons that are no damage (`EXCUSED`: duplicates, failed downloads) count in neither number of the fraction.

    Args:
        part: the name of the part.
        rows: the list; a sample may occur more than once, and two samples may have equal rows.
        seen: the number of samples of the source.
        left_out: the number of samples that are not stored.
        excused: the number of samples that are not stored for an excused reason alone.
        most: `ingest.max_quarantined`.
        kept: the folder that the list is written to where there are too many: then the part is not written.

    Raises:
        DarkroomError: too many samples are quarantined, or all; the message names the reasons and the list.
    """
    listed = [row for row in rows if row.action == Action.QUARANTINE]
    if not seen:
        raise DarkroomError(f"part `{part}`: its source has no samples: is it the right one? No part was written.")
    out, came = left_out - excused, seen - excused
    if out <= most * came and out < came:
        return
    kept.mkdir(parents=True, exist_ok=True)
    write_quarantine(kept, listed)
    reasons = ", ".join(f"{reason} {count:,}" for reason, count in counted(listed)[Action.QUARANTINE].items())
    first = listed[0]
    raise DarkroomError(
        f"part `{part}`: {left_out:,} of {seen:,} samples cannot be used ({reasons}), and `ingest.max_quarantined` "
        f"allows a fraction of {most:g}. The first is {first.source}: {first.reason} {first.detail}".rstrip()
        + f". All are listed in {kept / NAME}; repair the source, or raise the fraction. No part was written."
    )
