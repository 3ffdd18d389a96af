"""Programs that tests write."""

import sys
import textwrap
from pathlib import Path


def write_program(path: Path, code: str) -> Path:
    """Write a Python program that can be executed, wherever this Python lies: `#!` takes no path with a space."""
    path.parent.mkdir(parents=True, exist_ok=True)
    source = path.with_name(f"{path.name}.py")
    source.write_text(textwrap.dedent(code))
    path.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$0.py" "$@"\n')
    path.chmod(0o755)
    return path
