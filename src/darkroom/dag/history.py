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


def begun(path: Path = RUNS) -> dict[str, float]:
    """Return the stages whose bodies began and have not ended, with the second of the clock at which each began."""
    last = {str(event.get("stage")): event for event in events(path)}
    return {stage: float(event["time"]) for stage, event in last.items() if event.get("event") == "start"}
