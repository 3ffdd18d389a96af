"""Define the damage of samples, the actions, and their list `quarantine.parquet` next to the shards of a part."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from darkroom.artifacts.manifest import check_file, read_manifest, sha256_file
from darkroom.data.layout import KIND
from darkroom.errors import DarkroomError


class Reason(StrEnum):
    """The damage of a sample: the column `reason` of `quarantine.parquet`."""

    EMPTY = "empty"  # no bytes
    UNREADABLE = "unreadable"  # no permission, an input or output error, a broken link
    NAME_NOT_UTF8 = "name_not_utf8"  # DVC cannot hash it, so it would not see that it changed
    NOT_AN_IMAGE = "not_an_image"  # no supported format begins like this
    TRUNCATED = "truncated"  # the data end too early
    CORRUPT = "corrupt"  # the decoder found an error in the data
    BOMB = "bomb"  # more pixels than `ingest.max_pixels`
    ZERO_SIZE = "zero_size"  # width or height 0
    TOO_SMALL = "too_small"  # the shorter side is below `ingest.min_size`
    TRANSPARENT = "transparent"  # no pixel can be seen
    ONE_PIXEL = "one_pixel"  # 1 x 1 pixels, such as trackers and placeholders
    ONE_COLOUR = "one_colour"  # all pixels are equal as stored
    UNSUPPORTED = "unsupported"  # pixel values that cannot be converted to 8 bits a channel
    DUPLICATE = "duplicate"  # the same content as an earlier sample of the part
    KEY_TWICE = "key_twice"  # an earlier sample of the part has the same key
    KEY_INVALID = "key_invalid"  # cannot name a file in a shard
    CAPTION_MISSING = "caption_missing"  # captions were requested, and there is none, or an empty one
    CAPTION_NOT_UTF8 = "caption_not_utf8"
    LABEL_MISSING = "label_missing"  # labels were requested, and there is none
    LABEL_OUT_OF_RANGE = "label_out_of_range"  # not one of the classes
    MISSING = "missing"  # a table names it, and it does not exist
    DAMAGED_SHARD = "damaged_shard"  # a tar that ends too early or has a damaged header
    PASSED_OVER = "passed_over"  # an image of a tar that is not requested: an additional one of its sample, or hidden


class Action(StrEnum):
    """The action for a sample: the column `action` of `quarantine.parquet`."""

    QUARANTINE = "quarantine"  # not stored
    REPAIR = "repair"  # stored after a repair
    KEEP = "keep"  # stored unchanged


class DamageError(DarkroomError):
    """A sample cannot be stored."""

    def __init__(self, reason: Reason, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else str(reason))
        self.reason, self.detail = reason, detail

    def __reduce__(self) -> tuple[Any, ...]:
        return DamageError, (self.reason, self.detail)


@dataclass(frozen=True)
class Finding:
    """One damage of a sample. `detail` has no time, host or absolute path, because it becomes data."""

    reason: Reason
    detail: str = ""


@dataclass(frozen=True)
class Listed:
    """A row of `quarantine.parquet`."""

    key: str
    reason: Reason
    action: Action
    source: str
    detail: str


def action_of(reason: Reason, rules: Mapping[str, str]) -> Action:
    """Return the action for a reason, by `rules`, the section `ingest.rules`; quarantine if it has no rule there."""
    return Action(rules.get(reason, Action.QUARANTINE))


def counted(rows: Iterable[Listed]) -> dict[str, dict[str, int]]:
    """Return the number of samples by action and reason; a sample with two findings counts under both."""
    counts: dict[str, Counter[str]] = {action.value: Counter() for action in Action}
    for row in rows:
        counts[row.action][row.reason.value] += 1
    return {action: dict(sorted(by_reason.items())) for action, by_reason in counts.items()}


QUARANTINE = "quarantine.parquet"
# reason, action: see `darkroom.data.damage`; source: the location of the sample; detail: what was found, as text.
EXCUSED = {Reason.DUPLICATE, Reason.PASSED_OVER}
SCHEMA = pa.schema([(name, pa.string()) for name in ("key", "reason", "action", "source", "detail")])


def write_quarantine(folder: Path, rows: Iterable[Listed], left_out: int = 0, excused: int = 0) -> dict[str, Any]:
    """Write `folder/quarantine.parquet` and return the entry `quarantine` of the manifest.

    A sample may occur more than once in the list, and two samples may have equal rows; `left_out` samples are not
    stored, `excused` of them only for excused reasons.

    Returns:
        rows: the number of rows; sha256: the hash of the file; for each action the number of samples by reason; and
        where samples are left out, left_out and excused.
    """
    listed = list(rows)
    columns = {name: [str(getattr(row, name)) for row in listed] for name in SCHEMA.names}
    pq.write_table(pa.table(columns, schema=SCHEMA), folder / QUARANTINE, compression="zstd")
    counts = {"left_out": left_out, "excused": excused} if left_out else {}
    return {"rows": len(listed), "sha256": sha256_file(folder / QUARANTINE), **counted(listed), **counts}


def read_quarantine(folder: Path, manifest: Mapping[str, Any]) -> pa.Table:
    """Return the list in the folder of a part, after checking it against the manifest of the part.

    Raises:
        ArtifactError: missing or damaged; the message names the file.
    """
    check_file(folder / QUARANTINE, manifest["quarantine"]["sha256"])
    return pq.read_table(folder / QUARANTINE, schema=SCHEMA)


def require_some(part: str, rows: Iterable[Listed], samples: int, left_out: int, folder: Path) -> None:
    """Check that a part stores at least one of `samples` samples; else write the list of all to `folder`.

    Raises:
        DarkroomError: the source has no samples, or all are left out; the message names the reasons and the list.
    """
    if not samples:
        raise DarkroomError(f"part `{part}`: its source has no samples, so no part was written: check the source.")
    if left_out < samples:
        return
    listed = [row for row in rows if row.action == Action.QUARANTINE]
    folder.mkdir(parents=True, exist_ok=True)
    write_quarantine(folder, listed)
    raise DarkroomError(
        f"part `{part}`: none of its {samples:,} samples can be used ({_reasons(counted(listed)[Action.QUARANTINE])}). "
        f"The first is {_described(listed[0].source, listed[0].reason, listed[0].detail)}. All are listed in "
        f"{folder / QUARANTINE}: see `darkroom data {part} --quarantine`. Repair the source; no part was written."
    )


def require_few(parts: Iterable[str], limit: float, root: Path) -> None:
    """Check that the quarantined fraction of each part is at most `catalog.max_quarantined`, `limit`.

    Reasons that are not damage (`EXCUSED`) do not count in the numerator or denominator.

    Raises:
        DarkroomError: one sentence for each part with too many; it names the reasons and the first sample.
        ArtifactError: a part is missing or damaged.
    """
    lines = []
    for part in parts:
        manifest = read_manifest(root / part, KIND)
        quarantine = manifest["quarantine"]
        left_out, excused = quarantine.get("left_out", 0), quarantine.get("excused", 0)
        images = sum(split["images"] for split in manifest["splits"].values())
        if left_out - excused <= limit * (images + left_out - excused):
            continue
        table = read_quarantine(root / part, manifest)
        first = next(row for row in table.to_pylist() if row["action"] == Action.QUARANTINE)
        lines.append(
            f"part `{part}`: {left_out:,} of {images + left_out:,} samples cannot be used "
            f"({_reasons(quarantine[Action.QUARANTINE])}), but `catalog.max_quarantined` is {limit:g}. The "
            f"first is {_described(first['source'], first['reason'], first['detail'])}. `darkroom data {part} "
            "--quarantine` lists all. Repair the source, or raise the limit: this does not reread the source."
        )
    if lines:
        raise DarkroomError("\n".join(lines))


def _reasons(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{reason} {count:,}" for reason, count in counts.items())


def _described(source: str, reason: str, detail: str) -> str:
    return f"{source}: {reason} {detail}".rstrip()
