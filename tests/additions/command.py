"""A command as somebody would add it: one file."""

import json
from pathlib import Path
from typing import Annotated

from typer import Argument

from darkroom.tools import command


@command("Data", "label", "Count a label.")
def label(name: Annotated[str, Argument(help="A label.")]) -> str:
    """Return how many images have a label."""
    return f"{json.loads(Path('samples/labels/labels.json').read_text())[name]} images"
