"""The list of damaged, repaired or skipped samples: `quarantine.parquet` beside the shards of a part."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from darkroom.artifacts.manifest import ArtifactError, check_file, read_manifest, sha256_file
from darkroom.data.damage import Action, Listed, Reason, counted
from darkroom.data.layout import KIND
from darkroom.errors import DarkroomError

NAME = "quarantine.parquet"
# reason, action: see `darkroom.data.damage`; source: the location of the sample; detail: what was found, as text.
EXCUSED = {Reason.DOWNLOAD_FAILED, Reason.DUPLICATE, Reason.PASSED_OVER}
SCHEMA = pa.schema([(name, pa.string()) for name in ("key", "reason", "action", "source", "detail")])


def write_quarantine(folder: Path, rows: Iterable[Listed], left_out: int = 0, excused: int = 0) -> dict[str, Any]:
    """Write `folder/quarantine.parquet` and return the entry `quarantine` of the manifest.

    Args:
        folder: the folder of the part.
        rows: the list; a sample may occur more than once, and two samples may have equal rows.
        left_out: the number of samples that are not stored.
        excused: the number of these that are not stored for an excused reason alone.

    Returns:
        rows: the number of rows; sha256: the hash of the file; for each action the number of samples by reason; and
        where samples are left out, left_out and excused.
    """
    listed = list(rows)
    columns = {name: [str(getattr(row, name)) for row in listed] for name in SCHEMA.names}
    pq.write_table(pa.table(columns, schema=SCHEMA), folder / NAME, compression="zstd")
    counts = {"left_out": left_out, "excused": excused} if left_out else {}
    return {"rows": len(listed), "sha256": sha256_file(folder / NAME), **counted(listed), **counts}


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


def require_some(part: str, rows: Iterable[Listed], seen: int, left_out: int, excused: int, kept: Path) -> None:
    """Check that a part has a sample that is stored.

    Args:
        part: the name of the part.
        rows: the list.
        seen: the number of samples of the source.
        left_out: the number of samples that are not stored.
        excused: the number of samples that are not stored for an excused reason alone.
        kept: the folder that the list is written to where none is stored: then the part is not written.

    Raises:
        DarkroomError: the source has no samples, or all are left out; the message names the reasons and the list.
    """
    if not seen:
        raise DarkroomError(f"part `{part}`: its source has no samples: is it the right one? No part was written.")
    if left_out - excused < seen - excused:
        return
    listed = [row for row in rows if row.action == Action.QUARANTINE]
    kept.mkdir(parents=True, exist_ok=True)
    write_quarantine(kept, listed)
    raise DarkroomError(
        f"part `{part}`: none of its {seen:,} samples can be used ({_reasons(counted(listed)[Action.QUARANTINE])}). "
        f"The first is {_said(listed[0].source, listed[0].reason, listed[0].detail)}. All are listed in {kept / NAME}: "
        f"`darkroom data show {part} --quarantine`. Repair the source; no part was written."
    )


def require_few(parts: Iterable[str], most: float, root: Path) -> None:
    """Check that of no part a larger fraction is quarantined than `catalog.max_quarantined` allows.

    Reasons that are no damage (`EXCUSED`) count in neither number of the fraction.

    Args:
        parts: the names of the parts.
        most: the largest fraction.
        root: the folder of the parts.

    Raises:
        DarkroomError: one sentence for each part with too many; it names the reasons and the first sample.
        ArtifactError: a part is missing or damaged.
    """
    lines = []
    for part in parts:
        manifest = read_manifest(root / part, KIND)
        found = manifest["quarantine"]
        left_out, excused = found.get("left_out", 0), found.get("excused", 0)
        images = sum(split["images"] for split in manifest["splits"].values())
        if left_out - excused <= most * (images + left_out - excused):
            continue
        table = read_quarantine(root / part, manifest)
        first = next(row for row in table.to_pylist() if row["action"] == Action.QUARANTINE)
        lines.append(
            f"part `{part}`: {left_out:,} of {images + left_out:,} samples cannot be used "
            f"({_reasons(found[Action.QUARANTINE])}), and `catalog.max_quarantined` allows a fraction of {most:g}. The "
            f"first is {_said(first['source'], first['reason'], first['detail'])}. `darkroom data show {part} "
            "--quarantine` lists all. Repair the source, or raise the fraction: that reads nothing again."
        )
    if lines:
        raise DarkroomError("\n".join(lines))


def _reasons(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{reason} {count:,}" for reason, count in counts.items())


def _said(source: str, reason: str, detail: str) -> str:
    return f"{source}: {reason} {detail}".rstrip()
