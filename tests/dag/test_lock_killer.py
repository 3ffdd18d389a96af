"""Signals at random instants, most while DVC writes dvc.lock: the next command goes on, and no training is lost."""

import os
import random
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from dag.sandbox import ENGINES, Sandbox

STAGES = ("train_extractor", "score_generator")  # the first stages of a round, in the order of dvc.lock's writes
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)
PATIENCE = 300  # seconds


@dataclass(frozen=True)
class Shot:
    """A signal: which, to the whole group as Ctrl-C or to DVC alone, in whose writing of dvc.lock, and how long after.

    write: the place in STAGES of the stage whose entry is being written; None: `delay` counts from the start.
    delay: seconds.
    """

    number: signal.Signals
    group: bool
    write: int | None
    delay: float


def shots(rounds: int, seed: int) -> Iterator[Shot]:
    """Yield a shot for each round: each signal equally often, every fifth at any instant, the others within a write."""
    draw = random.Random(seed)
    for at in range(rounds):
        number = SIGNALS[at % len(SIGNALS)]
        anywhere = at % 5 == 4
        yield Shot(
            number,
            group=number == signal.SIGINT or draw.random() < 0.5,
            write=None if anywhere else (at + 1) % 2,
            delay=draw.uniform(0, 8) if anywhere else draw.choice([0, draw.uniform(0, 0.2)]),
        )


def wait_for(shot: Shot, sandbox: Sandbox, run: subprocess.Popen[bytes]) -> None:
    """Wait until a shot is due, or the run has ended."""
    lock, writes = sandbox.root / "dvc.lock", 0
    file = lock.stat().st_ino
    deadline = time.monotonic() + (shot.delay if shot.write is None else PATIENCE)
    while run.poll() is None and time.monotonic() < deadline:
        before, file = file, lock.stat().st_ino
        writes += file != before
        if shot.write is not None and writes > shot.write:
            time.sleep(shot.delay)
            return
        time.sleep(0.0005)


def processes(run: subprocess.Popen[bytes]) -> list[psutil.Process]:
    """Return the engine and all processes below it."""
    with suppress(psutil.NoSuchProcess):
        engine = psutil.Process(run.pid)
        return [engine, *engine.children(recursive=True)]
    return []


def is_dvc(process: psutil.Process) -> bool:
    """Return whether a process is DVC itself."""
    with suppress(psutil.Error, IndexError):
        words = [Path(word) for word in process.cmdline()[:3]]
        return any(name in (word.name, word.suffix[1:]) for word in words for name in ("dvc", "job"))
    return False


def fire(shot: Shot, run: subprocess.Popen[bytes]) -> None:
    """Send the signal, and wait until nothing of the run is left."""
    below = processes(run)
    if shot.group:
        with suppress(ProcessLookupError):
            os.killpg(run.pid, shot.number)
    else:
        for process in filter(is_dvc, below):
            with suppress(psutil.Error):
                process.send_signal(shot.number)
    run.wait(timeout=PATIENCE)
    _, alive = psutil.wait_procs(below, timeout=PATIENCE)
    assert not alive, alive


def go_on(sandbox: Sandbox, engine: str) -> None:
    """Run the same command again, after what a person is asked to do."""
    if engine == "dvc":
        sandbox.darkroom("check")
    elif any((sandbox.root / ".snakemake/locks").glob("*")):
        sandbox.snakemake("--unlock")
    sandbox.run(*ENGINES[engine])


MANY = [pytest.param(*case, marks=pytest.mark.slow) for case in (("snakemake", 1), ("dvc", 25), ("snakemake", 25))]


@pytest.mark.parametrize(("engine", "rounds"), [("dvc", 1), *MANY])
def test_the_next_command_goes_on_and_trains_nothing_again(toy: Sandbox, engine: str, rounds: int) -> None:
    for at, shot in enumerate(shots(rounds, seed=len(engine))):
        toy.edit({"train_extractor": {"training": {"seed": 1 + at}}})
        before = len(toy.history())
        with toy.start(*ENGINES[engine]) as run:
            wait_for(shot, toy, run)
            fire(shot, run)
        ended = {line["stage"] for line in toy.history()[before:] if line["event"] == "end"}
        with toy.bodies() as ran:
            go_on(toy, engine)
        if shot.write is not None:
            assert not set(STAGES[: shot.write + 1]) & set(ran), f"{shot}: {ran} ran again, and DVC had them"
        elif "train_extractor" in ended & set(ran):
            assert "resumes at image 64 of 64" in toy.log("train_extractor"), f"{shot}: trained again"
        assert toy.stale() == set(), shot
