"""Normalises labels from file names and tables."""

import re
import unicodedata

_REPEATS = re.compile(r"([1-9][0-9]*)_(.+)", re.DOTALL)


def label_of(text: str) -> str | None:
    """Return a label without surrounding blanks and in Unicode form NFC; None where it is empty.

    macOS writes an é in file names as two characters, other systems as one: both are the same class.
    """
    return unicodedata.normalize("NFC", text).strip() or None


def split_repeats(folder: str) -> tuple[int | None, str]:
    """Return the repeat count and the class of a folder REPEATS_CLASS, as kohya's trainers read it; None: no count."""
    match = _REPEATS.fullmatch(folder)
    return (int(match[1]), match[2]) if match else (None, folder)
