"""Keys made from paths, and paths as bytes and as text, for any file name.

A path is a str with `/` between its parts; bytes that are not UTF-8 are lone surrogates in it (PEP 383), in any
locale. A path is written into an artifact only through `shown` or `key_of`.
"""

import hashlib
import re

_LONGEST = 80  # maximum length of a key, as `darkroom.data.shards.KEY` allows
_DIGEST = 5  # bytes of the hash in a key
_OTHER = re.compile(r"[^A-Za-z0-9_-]")


def encoded(path: str) -> bytes:
    """Return a path as the bytes of the file system."""
    try:
        return path.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # a surrogate that stands for no byte: only a table can name it
        return path.encode("utf-8", "surrogatepass")


def shown(path: str) -> str:
    r"""Return a path, or another text, as valid Unicode: a byte that is not UTF-8 becomes `\xNN`."""
    return encoded(path).decode("utf-8", "backslashreplace")


def key_of(stem: str) -> str:
    """Return the key of a file from its path without the extension: 1 to 80 letters, digits, `_` and `-`.

    A path of such characters is its own key. In other paths all other characters become `-`, and a hash of the path
    follows, so that two files do not get the same key.
    """
    plain = _OTHER.sub("-", stem)
    if plain == stem and 0 < len(stem) <= _LONGEST:
        return stem
    digest = hashlib.blake2b(encoded(stem), digest_size=_DIGEST).hexdigest()
    return f"{plain[: _LONGEST - len(digest) - 1]}-{digest}"


def is_utf8(path: str) -> bool:
    """Return whether a path has no byte that is not UTF-8."""
    return path.isprintable() or not any("\ud800" <= letter <= "\udfff" for letter in path)
