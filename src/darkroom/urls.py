"""URLs of data: which names are URLs, and how one is shown without its secrets. What parts record depends on it."""

import re
from pathlib import Path

_QUERY = re.compile(r"(https?://[^\s?'\"<>]+)\?[^\s'\"<>]+")  # signed links carry their signature there
_USER = re.compile(r"(\w+://)[^\s/@]+:[^\s/@]+@")


def is_remote(tar: str) -> bool:
    """Return whether the name of a tar is a URL; a path, and a URL of `file:`, are not."""
    return "://" in tar and not tar.startswith(("file://", "local://"))


def local_path(tar: str) -> Path:
    """Return the path of a tar that is not remote."""
    return Path(tar.removeprefix("file://").removeprefix("local://"))


def redacted(text: str) -> str:
    """Return `text` on one line, without the queries and passwords of the URLs in it."""
    return " ".join(_USER.sub(r"\1", _QUERY.sub(r"\1", text)).split())
