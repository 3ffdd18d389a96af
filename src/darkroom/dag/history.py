"""The history in logs/runs.jsonl: when the body of each stage began and ended here."""

# No effect on any output: reads what the runner logs

import json
from pathlib import Path
from typing import Any

RUNS = Path("logs/runs.jsonl")


def events(path: Path = RUNS) -> list[dict[str, Any]]:
    """Return the events of a history in their order; nothing where it is missing."""
    if not path.is_file():
        return []
    found = []
    for text in path.read_text().splitlines():
        try:
            found.append(json.loads(text))
        except ValueError:
            continue  # a line that was cut off by a kill
    return found
