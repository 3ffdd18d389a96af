"""Stop a stage on a signal, or if its engine or its supervisor has ended.

A training handles SIGTERM and Ctrl-C with `interruptible`: it ends the optimizer step and writes a checkpoint.
"""

# No effect on any output: says when a stage must stop, and stops it

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import psutil


def _is(process: Any, program: str) -> bool:
    """Return whether a process runs a program: by its name, by `python -m`, or by the name of its script or module."""
    try:
        words = [Path(word) for word in process.cmdline()[:3]]
    except psutil.Error:  # another user's, or ended
        return False
    return any(program in (word.name, word.parent.name, word.suffix[1:]) for word in words)


def engine(ancestors: Sequence[Any]) -> list[Any]:
    """Return the processes from a stage up to the engine that started it, nearest first.

    The engine is the nearest DVC, or a parent that ends with it (`parents`); or, if a Snakemake is above it, the
    topmost one: its jobs may be Snakemakes, too. Processes above that, such as a shell, may end while the work goes
    on. Empty without an engine.
    """
    starters = ("dvc", "job", "parents")
    nearest = next((at for at, each in enumerate(ancestors) if any(_is(each, name) for name in starters)), None)
    if nearest is None:
        return []
    above = [place for place, process in enumerate(ancestors) if place > nearest and _is(process, "snakemake")]
    return list(ancestors[: max([nearest, *above]) + 1])


def _goes_on(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except (psutil.NoSuchProcess, IndexError):  # IndexError: it ended while psutil read its status
        return False


def watch(supervisor: int | None = None) -> None:
    """Send SIGTERM to this process when its engine or supervisor ends; a killed DVC leaves its command running.

    A `supervisor` (`launch`), the number of the process that started this one, watches the engine itself.
    """
    if supervisor is not None:
        watched = [psutil.Process(supervisor)] if psutil.pid_exists(supervisor) else [None]
    else:
        # Started by hand, whatever started the terminal: only the user waits for this stage.
        watched = engine(psutil.Process().parents()) if "DVC_STAGE" in os.environ else []

    def stop_when_gone() -> None:
        while all(process is not None and _goes_on(process) for process in watched):
            time.sleep(1)
        os.kill(os.getpid(), signal.SIGTERM)

    if watched:
        threading.Thread(target=stop_when_gone, daemon=True).start()


@contextlib.contextmanager
def handling(handlers: Mapping[signal.Signals, Any]) -> Iterator[None]:
    """Replace signal handlers inside the block."""
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def stoppable(supervised: bool) -> Iterator[None]:
    """Exit with 143 or 130, and clean up, on a signal inside the block that no training handles.

    A terminal that is closed counts as SIGTERM, so that a training writes a checkpoint, unless it runs under nohup. A
    process that is supervised ends by the signal itself, so that its supervisor knows that it was not training.
    """

    def stop(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    end: Any = signal.SIG_DFL if supervised else stop
    chosen = {signal.SIGTERM: end, signal.SIGINT: end}
    if signal.getsignal(signal.SIGHUP) == signal.SIG_DFL:
        chosen[signal.SIGHUP] = lambda number, frame: signal.raise_signal(signal.SIGTERM)
    with handling(chosen):
        yield


@contextlib.contextmanager
def interruptible() -> Iterator[list[int]]:
    """Yield a list to which SIGTERM and SIGINT are appended inside the block; a second Ctrl-C stops at once."""
    signals: list[int] = []

    def take(number: int, frame: FrameType | None) -> None:
        if signals and number == signal.SIGINT:
            raise SystemExit(128 + number)
        signals.append(number)

    with handling({signal.SIGTERM: take, signal.SIGINT: take}):
        yield signals
