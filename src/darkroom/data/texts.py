"""Texts in a file, one a line."""

from pathlib import Path

from darkroom.errors import DarkroomError


def read_texts(path: Path, name: str) -> list[str]:
    """Return the lines of a file in UTF-8, with or without a byte-order mark; no blanks at their ends, no empty lines.

    `name` is what named the file, for errors: an option or a key with its value.

    Raises:
        DarkroomError: it cannot be read, or holds no text.
    """
    try:
        lines = [line.strip() for line in path.read_text(encoding="utf-8-sig").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise DarkroomError(f"{name} cannot be read: {error}.") from error
    if not any(lines):
        raise DarkroomError(f"{name} holds no text: write one a line.")
    return [line for line in lines if line]
