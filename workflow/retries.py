"""Decide which failed jobs Snakemake starts again.

Snakemake has one number per rule, and `--retries` for all rules. Without `--retries`, here or in a profile,

- a training, or `sample_generator`, starts again where it left a checkpoint: it continues from there. Where it has
  written none since it last failed, it would fail at the same images again, and does not start;
- `ingest` starts again once, since a source may lie behind a network.

With `--retries N` every stage starts again N times at most. A stage that failed with a DarkroomError would fail again
and is not restarted. `ingest` is the exception, since a network error is a DarkroomError too. After Ctrl-C or SIGTERM
Snakemake starts no job.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from snakemake.jobs import Job

from darkroom.dag.stages import SHARED, TRAININGS
from darkroom.params.stage import address, file_name
from darkroom.processes.launch import CONTINUES
from darkroom.training.state import root

OPTIONS = ("--retries", "--restart-times", "-T")
LOGS = Path("logs")
Checkpoints = dict[tuple[str, int], list[str]]


def checkpoints(name: str) -> list[str]:
    """Return the checkpoints, or finished batches, in the state that a stage used last."""
    states = sorted(root().glob(f"{name}-{'?' * 16}"), key=lambda path: path.stat().st_mtime)
    return sorted(str(path) for state in states[-1:] for path in (*state.glob("images-*"), *state.glob("batches-*/*")))


def refused(name: str) -> bool:
    """Return whether the log of a stage contains an error that needs a person."""
    log = LOGS / f"{name}.log"
    text = log.read_text(errors="replace") if log.is_file() else ""
    return "\nerror: " in f"\n{text}" and not text.rstrip().endswith(CONTINUES)


def starts_again(stage: str, item: str | None, attempt: int, limit: int | None, history: Checkpoints) -> bool:
    """Return whether a job that has just failed starts again.

    Args:
        stage: its name.
        item: its part or U-Net; None: it runs once.
        attempt: which attempt failed, the first is 1.
        limit: `--retries`; None: not set.
        history: checkpoints after each attempt, by job and attempt; this one is added.
    """
    name = file_name(stage, item)
    if stage == "ingest":
        return attempt <= (1 if limit is None else limit)
    if refused(name):
        return False
    if limit is not None:
        return attempt <= limit
    now = history[address(stage, item), attempt] = checkpoints(name)
    return stage in TRAININGS + SHARED and bool(now) and now != history.get((address(stage, item), attempt - 1))


def limit_of(retries: int, command: Sequence[str]) -> int | None:
    """Return `--retries`, None if it is not set; Snakemake has 0 in both cases, so the command decides."""
    return retries if retries or any(word.startswith(OPTIONS) for word in command) else None


def decide() -> None:
    """Let Snakemake's scheduler ask `starts_again` when a job has failed."""
    history: Checkpoints = {}

    def restart_times(job: Job) -> int:
        item = next(iter(job.wildcards), None)
        limit = limit_of(job.rule.restart_times, sys.argv)
        return job.attempt * starts_again(job.rule.name, item, job.attempt, limit, history)

    Job.restart_times = property(restart_times)
