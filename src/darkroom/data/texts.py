"""Read texts from a file, one per line."""

from pathlib import Path

from darkroom.errors import DarkroomError


def read_texts(path: Path, name: str) -> list[str]:
    """Return the non-empty lines of a UTF-8 file, with or without a byte-order mark, stripped of blanks.

    `name` is the origin of the file name, for errors: an option or a key with its value.

    Raises:
        DarkroomError: the file cannot be read, or has no text.
    """
    try:
        lines = [line.strip() for line in path.read_text(encoding="utf-8-sig").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise DarkroomError(f"{name} cannot be read: {error}.") from error
    if not any(lines):
        raise DarkroomError(f"{name} has no text: write one text per line.")
    return [line for line in lines if line]
