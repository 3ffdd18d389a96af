"""Clear Snakemake's marks of interrupted jobs whose outputs DVC has completed.

Snakemake marks each output of a job that starts, and removes the mark when the job succeeds. After an interruption
it would run the job again (`rerun-incomplete`), though `dvc repro` has finished the stage meanwhile.
"""

import base64
import binascii
from collections.abc import Collection
from pathlib import Path

MARKS = Path(".snakemake/incomplete")


def output(mark: Path) -> str | None:
    """Return the output of a mark; None: its name is not one of Snakemake's.

    The name is the path in URL-safe base64; longer names are split into folders that start with @.
    """
    name = "".join(part.removeprefix("@") for part in mark.relative_to(MARKS).parts)
    try:
        return base64.b64decode(name, altchars=b"-_", validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return None


def clear(fresh: Collection[str]) -> None:
    """Remove the marks of outputs that are up to date by their content."""
    for mark in [path for path in MARKS.rglob("*") if path.is_file()]:
        if output(mark) in fresh:
            mark.unlink(missing_ok=True)
