"""Labels as people's files and tables hold them."""

import unicodedata


def label_of(text: str) -> str | None:
    """Return a label without blanks around it and with letters in one form (NFC), None where nothing is left.

    macOS writes an é into names as two characters, and others as one: they are one class, as "cat" and " cat" are.
    """
    return unicodedata.normalize("NFC", text).strip() or None
