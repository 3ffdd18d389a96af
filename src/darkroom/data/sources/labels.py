"""Normalises labels from file names and tables."""

import unicodedata


def label_of(text: str) -> str | None:
    """Return a label without surrounding blanks and in Unicode form NFC; None where it is empty.

    macOS writes an é in file names as two characters, other systems as one: both are the same class.
    """
    return unicodedata.normalize("NFC", text).strip() or None


def split_repeats(folder: str) -> tuple[int | None, str]:
    """Return repeat count and class of a folder REPEATS_CLASS, as kohya's trainers read it; None and its name: none."""
    count, _, name = folder.partition("_")
    named = name and count.isascii() and count.isdigit() and not count.startswith("0")
    return (int(count), name) if named else (None, folder)
