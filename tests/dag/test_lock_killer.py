"""Signals at random instants, most while DVC writes dvc.lock: the next command goes on, and no training is lost."""

import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import psutil
import pytest

from dag.long_training import resumed_at, told
from dag.sandbox import Sandbox, side_by_side

STAGES = ("catalog", "train_extractor")  # the stages of a round, in the order in which dvc.lock is written
TARGETS = {
    "dvc": ("dvc", "repro", "train_extractor"),
    "snakemake": ("snakemake", "--cores", "2", "models/extractor"),
}
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)
ROUNDS = {"few": 3, "many": 25}  # by each engine
IMAGES = 64  # of the training
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
            delay=draw.uniform(0, 25) if anywhere else draw.choice([0, draw.uniform(0, 0.2)]),
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
        return any("dvc" in (Path(word).name, Path(word).suffix[1:]) for word in process.cmdline()[:3])
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
        sandbox.run("env", "PYTHONPATH=src", "python", "-m", "darkroom", "check")
    elif any((sandbox.root / ".snakemake/locks").glob("*")):
        sandbox.snakemake("--unlock")
    sandbox.run(*TARGETS[engine])


def story(sandbox: Sandbox, engine: str, rounds: int) -> list[str]:
    """Let each shot hit a run of its own, and return what was wrong afterwards, a line each."""
    wrong = []
    for at, shot in enumerate(shots(rounds, seed=len(engine))):
        sandbox.edit({"catalog": {"grid_images": 5 + at}, "train_extractor": {"training": {"seed": 1 + at}}})
        before = len(sandbox.history())
        with sandbox.start(*TARGETS[engine]) as run:
            wait_for(shot, sandbox, run)
            fire(shot, run)
        ended = {line["stage"] for line in sandbox.history()[before:] if line["event"] == "end"}
        with sandbox.bodies() as ran:
            go_on(sandbox, engine)
        again = ended & set(ran)
        if shot.write is not None and set(STAGES[: shot.write + 1]) & set(ran):
            wrong.append(f"{engine}, {shot}: {ran} ran again, and DVC had them")
        elif "train_extractor" in again and resumed_at(told(sandbox)) != IMAGES:
            wrong.append(f"{engine}, {shot}: trained again: {told(sandbox)}")
        if stale := sandbox.stale("train_extractor"):
            wrong.append(f"{engine}, {shot}: {stale} are out of date")
    return wrong


@pytest.fixture(scope="module")
def stories(
    committed: Sandbox, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> dict[str, Future[list[str]]]:
    """What was wrong after the shots that the tests of this run ask for, two engines at a time."""
    told: dict[str, Callable[[], list[str]]] = {
        f"{engine}-{many}": partial(
            story,
            committed.copy(tmp_path_factory.mktemp("killer") / "a clone with spaces"),
            engine,
            ROUNDS[many],
        )
        for many in ROUNDS
        for engine in TARGETS
        if any(item.name.endswith(f"[{engine}-{many}]") for item in request.session.items)
    }
    return side_by_side(told)


@pytest.mark.parametrize("many", ["few", pytest.param("many", marks=pytest.mark.slow)])
@pytest.mark.parametrize("engine", TARGETS)
def test_the_next_command_goes_on_and_trains_nothing_again(
    stories: dict[str, Future[list[str]]], engine: str, many: str
) -> None:
    assert stories[f"{engine}-{many}"].result() == []
