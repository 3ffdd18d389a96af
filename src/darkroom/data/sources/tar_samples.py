"""Groups the members of a tar into samples by the beginning of their names, as webdataset does."""

import re
from collections.abc import Iterable

from darkroom.data.tars import Member

_META = re.compile(r"__[^/]*__($|/)")  # webdataset's metadata of the whole shard

Sample = tuple[str, dict[str, Member]]


def split_name(name: str) -> tuple[str, str] | None:
    """Return the key and the extension of a member: the name before and after the first dot behind the last `/`.

    The folder is part of the key; the extension is in lower case, and may be empty. None: the member belongs to no
    sample: metadata of webdataset, or a hidden file, such as `._NAME`, which macOS adds for each file.
    """
    folder, slash, file = name.rpartition("/")
    if _META.match(name) or file.startswith("."):
        return None
    stem, _, ending = file.partition(".")
    return folder + slash + stem, ending.lower()


def samples(members: Iterable[Member]) -> list[Sample]:
    """Return the samples of a shard: their keys, and their members by extension; members may come in any order.

    A repeated extension begins another sample with the same key, which is quarantined and listed.
    """
    found: list[Sample] = []
    latest: dict[str, dict[str, Member]] = {}
    for member in members:
        if (named := split_name(member.name)) is None:
            continue
        key, ending = named
        if key not in latest or ending in latest[key]:
            latest[key] = {}
            found.append((key, latest[key]))
        latest[key][ending] = member
    return found
