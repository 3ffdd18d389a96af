"""Read how long stages take from the history in logs/runs.jsonl.

It lists when the body of each stage started and ended on this machine, and its seconds.
"""

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

RUNS = Path("logs/runs.jsonl")
_QUIET = 1.2  # maximum duration of a body over its CPU time, above which others used the machine, too


def events(path: Path = RUNS) -> list[dict[str, Any]]:
    """Return the events of a history in order; empty if it is missing."""
    if not path.is_file():
        return []
    records = []
    for text in path.read_text().splitlines():
        with suppress(ValueError):  # a line that a kill cut off
            records.append(json.loads(text))
    return records


@dataclass(frozen=True)
class Run:
    """The last run of a stage's body here.

    seconds: its duration.
    complete: whether it ran from start to end: after a kill the next body may only do the remaining work.
    alike: whether the next run will take as long: it ran on this machine, on the CPU or GPU that `run` names now, with
        the current parameters, from start to end, while nobody else used the machine.
    """

    seconds: float
    alike: bool
    complete: bool = field(default=True, compare=False)


def last_runs(path: Path, machine: str, keys: Mapping[str, str]) -> dict[str, Run]:
    """Return the last run of each stage's body in a history.

    `machine` and `keys` are the runner's current names of this machine and of the parameters of each stage.
    """
    runs: dict[str, Run] = {}
    begun: dict[str, int] = {}  # starts without an end
    for line in events(path):
        stage, event = str(line.get("stage")), line.get("event")
        if event == "start":
            begun[stage] = begun.get(stage, 0) + 1
        elif event == "end" and "seconds" in line:
            comparable = line.get("machine") == machine and line.get("params") == keys.get(stage, "")
            quiet = line["seconds"] <= _QUIET * line.get("cpu", 0.0) + 1.0  # a second for the disk
            complete = begun.pop(stage, 0) == 1
            runs[stage] = Run(line["seconds"], complete and comparable and quiet, complete)
    return runs
