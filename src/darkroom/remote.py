"""What lies elsewhere: its addresses hold no secrets, and its failures become one sentence that holds none either."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from darkroom.errors import DarkroomError


def require_no_password(url: str, key: str) -> None:
    """Check that a URL from params.yaml holds no password: that file is in git, and trackers and DVC copy it.

    Raises:
        DarkroomError: it does; names the `key` in params.yaml.
    """
    if "://" in url and urlsplit(url).password:
        raise DarkroomError(
            f"`{key}` holds a password: take it out, and give credentials through the environment or the "
            "configuration file that the service's own tools read."
        )


@contextmanager
def telling(what: str) -> Iterator[None]:
    """Turn whatever a library raises inside the block into one sentence.

    Each of the file systems and services has exceptions of its own, with no common base below Exception.

    Raises:
        DarkroomError: `what` went wrong, and the library's reason, without secrets.
    """
    try:
        yield
    except DarkroomError:
        raise
    except Exception as error:
        reason = redacted(str(error)) or "no reason given"
        raise DarkroomError(f"{what}: {reason} ({type(error).__name__}).") from error


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
