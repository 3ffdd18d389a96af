"""What can be wrong with a sample, and the action that follows: it is kept, repaired or quarantined, and listed."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from darkroom.errors import DarkroomError


class Reason(StrEnum):
    """What is wrong with a sample: the column `reason` of `quarantine.parquet`."""

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
    ONE_PIXEL = "one_pixel"  # 1 x 1 pixels, as of trackers and placeholders
    ONE_COLOUR = "one_colour"  # all pixels are equal as stored
    UNSUPPORTED = "unsupported"  # pixel values that cannot be converted to 8 bits a channel
    WRONG_EXTENSION = "wrong_extension"  # the content has another format than the name says
    DUPLICATE = "duplicate"  # the same content as an earlier sample of the part
    KEY_TWICE = "key_twice"  # an earlier sample of the part has the same key
    KEY_INVALID = "key_invalid"  # cannot name a file in a shard
    CAPTION_MISSING = "caption_missing"  # captions were requested, and there is none, or an empty one
    CAPTION_NOT_UTF8 = "caption_not_utf8"
    LABEL_MISSING = "label_missing"  # labels were requested, and there is none
    LABEL_OUT_OF_RANGE = "label_out_of_range"  # not one of the classes
    MISSING = "missing"  # a table names it, and it does not exist
    DOWNLOAD_FAILED = "download_failed"
    DAMAGED_SHARD = "damaged_shard"  # a tar that ends too early or has a damaged header
    PASSED_OVER = "passed_over"  # an image of a tar that is not asked for: a further one of its sample, or hidden


class Action(StrEnum):
    """What was done with a sample: the column `action` of `quarantine.parquet`."""

    QUARANTINE = "quarantine"  # not stored
    REPAIR = "repair"  # stored after a repair
    KEEP = "keep"  # stored unchanged


# Reasons whose action is the parameter `ingest.rules.REASON`; samples with any other reason are quarantined.
CHOSEN = (
    Reason.WRONG_EXTENSION,
    Reason.TRANSPARENT,
    Reason.ONE_PIXEL,
    Reason.ONE_COLOUR,
    Reason.DUPLICATE,
    Reason.CAPTION_MISSING,
    Reason.CAPTION_NOT_UTF8,
    Reason.LABEL_MISSING,
    Reason.LABEL_OUT_OF_RANGE,
)


class DamageError(DarkroomError):
    """A sample cannot be stored."""

    def __init__(self, reason: Reason, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else str(reason))
        self.reason, self.detail = reason, detail

    def __reduce__(self) -> tuple[Any, ...]:
        return DamageError, (self.reason, self.detail)


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong with a sample. `detail` holds no time, host or absolute path: it becomes data."""

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
    """Return the action for a reason; `rules` is the section `ingest.rules`."""
    return Action(rules[reason]) if reason in CHOSEN else Action.QUARANTINE


def counted(rows: Iterable[Listed]) -> dict[str, dict[str, int]]:
    """Return the number of samples by action and reason; a sample with two findings counts under both."""
    counts: dict[str, Counter[str]] = {action.value: Counter() for action in Action}
    for row in rows:
        counts[row.action][row.reason.value] += 1
    return {action: dict(sorted(found.items())) for action, found in counts.items()}
