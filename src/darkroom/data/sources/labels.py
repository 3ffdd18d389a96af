"""Normalises labels from file names and tables."""

import unicodedata


def label_of(text: str) -> str | None:
    """Return a label without surrounding blanks and in Unicode form NFC; None where it is empty.

    macOS writes an é in file names as two characters, other systems as one: both are the same class.
    """
    return unicodedata.normalize("NFC", text).strip() or None
