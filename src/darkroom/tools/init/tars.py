"""Where the samples of webdataset tars have their classes and captions: what settings of `webdataset` fit them."""

import json
from itertools import islice
from pathlib import Path
from typing import Any

from darkroom.data.sources.captions import answer_of
from darkroom.data.sources.tar_names import in_folder, shown_tar
from darkroom.data.tar_files import TarFiles
from darkroom.data.tars import Sample, compression, members, samples
from darkroom.errors import DarkroomError
from darkroom.tools.init.columns import choose

_MEMBERS = 3000  # of the first tar, that are looked at
_JSON = 500  # samples whose JSON is read
_MOST = 0.8  # fraction of the samples that must have a member, for this to be the rule
_LABELS = ("cls", "label", "class")
_CAPTIONS = ("txt", "caption", "text")


def tar_settings(path: Path) -> dict[str, Any]:
    """Return the settings that fit tars: members or fields of the JSON for classes and captions.

    Args:
        path: a folder of tars, or a tar.

    Raises:
        DarkroomError: the first tar cannot be read.
    """
    files = TarFiles(in_folder(path))
    shard = shown_tar(files.names[0])
    try:
        plain, packed = files(0), compression(files.stored(0)) is not None
        found = samples(islice(members(plain, shard, unread=[]), _MEMBERS))[:-1]  # the last may be cut
        rows = _json(plain, found)
    except OSError as error:
        raise DarkroomError(f"{shard} cannot be read: {error.strerror}.") from error
    names = dict.fromkeys(name for row in rows for name in row)
    columns = choose({name: [row.get(name) for row in rows] for name in names}, "JSON")
    label = _ending(found, _LABELS) or (f"json:{columns.label}" if columns.label else None)
    caption = _ending(found, _CAPTIONS) or (f"json:{columns.caption}" if columns.caption else None)
    return {"label": label, "caption": caption, **({"repack": True} if packed else {})}


def _ending(found: list[Sample], endings: tuple[str, ...]) -> str | None:
    """Return the first ending that most samples have as a member."""
    return next(
        (each for each in endings if sum(each in sample for _, sample in found) >= max(1, _MOST * len(found))), None
    )


def _json(plain: Path, found: list[Sample]) -> list[dict[str, str | None]]:
    """Return the texts and numbers in the JSON of some samples, as texts."""
    rows: list[dict[str, str | None]] = []
    with plain.open("rb") as file:
        for _, sample in found[:_JSON]:
            if (member := sample.get("json")) is None:
                continue
            file.seek(member.offset)
            try:
                row = json.loads(file.read(member.size))
            except (ValueError, RecursionError):
                continue
            if isinstance(row, dict):
                values = {name: answer_of(value) for name, value in row.items()}
                rows.append({key: str(each) for key, each in values.items() if isinstance(each, str | int | float)})
    return rows
