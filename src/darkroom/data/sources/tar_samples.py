"""Which members of a tar make a sample: those whose names begin alike, as webdataset has it."""

import re
from collections.abc import Iterable

from darkroom.data.tars import Member

_META = re.compile(r"__[^/]*__($|/)")  # what webdataset keeps of the whole shard

Sample = tuple[str, dict[str, Member]]


def split_name(name: str) -> tuple[str, str] | None:
    """Return the key and the ending of a member: what is before and after the first dot behind the last `/`.

    The folder is part of the key; the ending is in lower case, empty where there is none. None: no sample's: a file of
    webdataset's own, or a hidden one, as macOS puts `._NAME` beside each file.
    """
    folder, slash, file = name.rpartition("/")
    if _META.match(name) or file.startswith("."):
        return None
    stem, _, ending = file.partition(".")
    return folder + slash + stem, ending.lower()


def samples(members: Iterable[Member]) -> list[Sample]:
    """Return the samples of a shard: their keys, and their members by ending; members may come in any order.

    Where an ending comes again, another sample of the same key begins: it will be listed as such, and not lost.
    """
    found: list[Sample] = []
    latest: dict[str, dict[str, Member]] = {}
    for member in members:
        named = split_name(member.name)
        if named is None:
            continue
        key, ending = named
        if key not in latest or ending in latest[key]:
            latest[key] = {}
            found.append((key, latest[key]))
        latest[key][ending] = member
    return found
