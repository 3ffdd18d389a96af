"""A command as somebody would add it: a function, and a line of `GROUPS`."""

import json
from pathlib import Path
from typing import Annotated

from typer import Argument


def label(name: Annotated[str, Argument(help="A label.")]) -> str:
    """Return how many images have a label."""
    return f"{json.loads(Path('samples/labels/labels.json').read_text())[name]} images"
