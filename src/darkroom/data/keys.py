"""Keys made from paths, and paths as bytes and as text, whatever is in a file's name.

A path is a str with `/` between its parts; bytes that are not UTF-8 stand in it as lone surrogates (PEP 383), whatever
the locale. Nothing of it may go into an artifact but through `shown` or `key_of`.
"""

import hashlib
import re

_LONGEST = 80  # of a key, as `darkroom.data.shards.KEY` allows
_DIGEST = 5  # bytes
_OTHER = re.compile(r"[^A-Za-z0-9_-]")


def encoded(path: str) -> bytes:
    """Return the bytes that the file system knows a path by."""
    try:
        return path.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # a surrogate that stands for no byte: a table names it, no file is called so
        return path.encode("utf-8", "surrogatepass")


def shown(path: str) -> str:
    r"""Return a path, or another text, as valid Unicode: a byte that is not UTF-8 becomes `\xNN`."""
    return encoded(path).decode("utf-8", "backslashreplace")


def key_of(stem: str) -> str:
    """Return the key of the file with this path, its ending left out: 1 to 80 letters, digits, `_` and `-`.

    A path of such characters is its own key. In any other they become `-`, and a hash of the path follows, so that two
    files do not share a key by accident.
    """
    plain = _OTHER.sub("-", stem)
    if plain == stem and 0 < len(stem) <= _LONGEST:
        return stem
    digest = hashlib.blake2b(encoded(stem), digest_size=_DIGEST).hexdigest()
    return f"{plain[: _LONGEST - len(digest) - 1]}-{digest}"
