"""Handle remote files: check URLs for secrets, and report errors in one sentence without secrets."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from darkroom.errors import DarkroomError


def require_no_password(url: str, key: str) -> None:
    """Check that a URL from params.yaml has no password, since git, DVC and trackers copy that file.

    Raises:
        DarkroomError: the URL has a password; the message names the `key` in params.yaml.
    """
    if "://" in url and urlsplit(url).password:
        raise DarkroomError(
            f"`{key}` contains a password: remove it, and set the credentials in the environment or in the "
            "configuration file of the service."
        )


@contextmanager
def library_errors(action: str) -> Iterator[None]:
    """Convert any library exception inside the block to a DarkroomError.

    File systems and services raise their own exceptions, with no common base class below Exception.

    Raises:
        DarkroomError: names the failed `action` and the reason of the library, without secrets.
    """
    try:
        yield
    except DarkroomError:
        raise
    except Exception as error:
        reason = redacted(str(error)) or "no reason given"
        raise DarkroomError(f"{action}: {reason} ({type(error).__name__}).") from error


_QUERY = re.compile(r"(https?://[^\s?'\"<>]+)\?[^\s'\"<>]+")  # signed links carry their signature there
_USER = re.compile(r"(\w+://)[^\s/@]+:[^\s/@]+@")


def is_remote(tar: str) -> bool:
    """Return whether the name of a tar is a remote URL, not a path or a `file:` URL."""
    return "://" in tar and not tar.startswith(("file://", "local://"))


def local_path(tar: str) -> Path:
    """Return the path of a local tar."""
    return Path(tar.removeprefix("file://").removeprefix("local://"))


def redacted(text: str) -> str:
    """Return `text` on one line, without queries and passwords of URLs."""
    return " ".join(_USER.sub(r"\1", _QUERY.sub(r"\1", text)).split())
