"""A training is stopped in every way that a person, a terminal or a system has, through both engines, and continues."""

import os
import pty
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from dag.sandbox import Sandbox, wait_until
from darkroom.dag import parents

STAGE = "train_extractor"
# A training of some seconds, with no checkpoint unless it is stopped; its log says `images/s` at each validation.
LONG = {
    "run": {"max_lost_seconds": 1_000_000},
    STAGE: {"training": {"images": 6_400, "log_every": 160, "validate_every": 800}},
}
TWO = {STAGE: {"training": {"processes": 2}}}
RUNS = {"dvc": ("dvc", "repro", STAGE), "snakemake": ("snakemake", "--cores", "2", "models/extractor")}
ENDS = {
    "dvc": ("SIGTERM", "SIGKILL", "Ctrl-C", "closed terminal"),
    "snakemake": ("SIGTERM", "SIGKILL", "Ctrl-C"),
}
QUICK = {("dvc", "SIGKILL"), ("dvc", "Ctrl-C")}  # and those of the real training below; the others: `make test-all`
CASES = [
    pytest.param(engine, end, marks=() if (engine, end) in QUICK else pytest.mark.slow)
    for engine, ends in ENDS.items()
    for end in ends
]
IN_TIME = 15  # seconds
# Makes a terminal, its standard input, the one that it works on, as a shell would find it.
ON_TERMINAL = "import os, sys; os.login_tty(0); os.execvp(sys.argv[1], sys.argv[1:])"


class Terminal:
    """The other end of a terminal that a command works on."""

    def __init__(self, run: subprocess.Popen[bytes], end: int) -> None:
        self.run, self.shown = run, b""
        self._end = end
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        with suppress(OSError):  # closed
            while data := os.read(self._end, 4096):
                self.shown += data

    def type(self, keys: bytes) -> None:
        """Press keys."""
        os.write(self._end, keys)


@contextmanager
def on_a_terminal(sandbox: Sandbox, *command: str) -> Iterator[Terminal]:
    """Start a command as the foreground of a terminal of its own, which is closed after the block."""
    ours, theirs = pty.openpty()
    run = subprocess.Popen(
        [sys.executable, "-c", ON_TERMINAL, *command],
        cwd=sandbox.root,
        env=sandbox.environment,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    try:
        yield Terminal(run, ours)
    finally:
        run.kill()
        run.wait()
        os.close(ours)


def alive(process: psutil.Process) -> bool:
    """Return whether a process goes on; one that nobody waited for does not."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except (psutil.NoSuchProcess, IndexError):  # IndexError: it ended while psutil read of it
        return False


def require_gone(processes: list[psutil.Process]) -> None:
    """Fail where one of some processes goes on for longer than it should."""
    wait_until(lambda: not any(map(alive, processes)), IN_TIME, lambda: f"still there: {[*filter(alive, processes)]}")


def begun(run: subprocess.Popen[bytes], trains: Callable[[], bool], shown: Callable[[], str]) -> list[psutil.Process]:
    """Wait until a run trains, and return it and all processes below it."""
    wait_until(lambda: trains() or run.poll() is not None, 90, shown)
    assert run.poll() is None, shown()
    engine = psutil.Process(run.pid)
    return [engine, *engine.children(recursive=True)]


def stop(sandbox: Sandbox, engine: str, end: str, trains: Callable[[], bool]) -> str:
    """Stop a training of an engine in some way, and return its log."""
    (sandbox.root / f"logs/{STAGE}.log").unlink(missing_ok=True)
    if end in ("Ctrl-C", "closed terminal"):
        with on_a_terminal(sandbox, *RUNS[engine]) as terminal:
            processes = begun(terminal.run, trains, lambda: terminal.shown.decode(errors="replace"))
            if end == "Ctrl-C":
                terminal.type(b"\x03")
                require_gone(processes)
    else:
        with sandbox.start(*RUNS[engine]) as run:
            processes = begun(run, trains, lambda: "")
            run.send_signal(signal.Signals[end])  # the engine alone
            require_gone(processes)
    require_gone(processes)
    if (engine, end) == ("snakemake", "SIGKILL"):
        sandbox.snakemake("--unlock")
    return sandbox.log(STAGE)


def image(pattern: str, text: str) -> int:
    """Return the image that a log names, 0 where it names none."""
    found = re.search(pattern + r" at image ([\d,]+)", text)
    return int(found[1].replace(",", "")) if found else 0


@pytest.mark.parametrize(("engine", "end"), CASES)
def test_a_training_stops_with_its_engine_and_the_same_command_continues(toy: Sandbox, engine: str, end: str) -> None:
    toy.edit({STAGE: {"training": {"seed": 1}}})
    place = toy.root / f".darkroom/hold/{STAGE} at 32"
    place.parent.mkdir()
    place.touch()
    log = stop(toy, engine, end, place.with_name(f"{place.name} reached").exists)
    assert image("stopped", log) == 32
    place.unlink()
    assert toy.ran(*RUNS[engine]) == [STAGE]
    assert image("resumes", toy.log(STAGE)) == 32 and toy.stale(STAGE) == set()


def undisturbed(committed: Sandbox, folder: Path, *changes: dict[str, Any]) -> dict[str, str]:
    """Return the hashes that a training leaves that nobody stops."""
    sandbox = committed.copy(folder / "undisturbed")
    for change in changes:
        sandbox.edit(change)
    sandbox.run(*RUNS["dvc"])
    return sandbox.hashes(STAGE)


def trains(sandbox: Sandbox) -> Callable[[], bool]:
    return lambda: "images/s" in sandbox.log(STAGE)


def test_a_real_training_that_is_stopped_and_killed_loses_no_bit(
    committed: Sandbox, fresh: Sandbox, tmp_path: Path
) -> None:
    """Snakemake is stopped; then the training is killed, and Snakemake starts it again."""
    fresh.edit(LONG)
    fresh.environment[parents.NAME] = ""  # loading them takes longer than this training
    reached = image("stopped", stop(fresh, "snakemake", "SIGTERM", trains(fresh)))
    fresh.edit({"run": {"max_lost_seconds": 1}})
    checkpoints = lambda: {*(fresh.root / ".darkroom/state").glob(f"{STAGE}-*/images-*")}  # noqa: E731
    before = checkpoints()
    (fresh.root / f"logs/{STAGE}.log").unlink()
    with fresh.start(*RUNS["snakemake"]) as run:
        processes = begun(run, lambda: bool(checkpoints() - before), lambda: fresh.log(STAGE))
        assert image("resumes", fresh.log(STAGE)) == reached > 0
        next(process for process in processes if process.cmdline()[2:] == ["darkroom", STAGE]).kill()
        assert run.wait(timeout=300) == 0
    assert image("resumes", fresh.log(STAGE)) > reached
    assert fresh.hashes(STAGE) == undisturbed(committed, tmp_path, LONG) != committed.hashes(STAGE)


@pytest.mark.slow
def test_two_processes_stop_as_one_and_continue(committed: Sandbox, fresh: Sandbox, tmp_path: Path) -> None:
    """One that is killed takes the other along, Ctrl-C costs nothing, and no bit is lost."""
    fresh.edit(LONG)
    fresh.edit(TWO)
    (fresh.root / f"logs/{STAGE}.log").unlink()
    with fresh.start(*RUNS["dvc"]) as run:
        processes = begun(run, trains(fresh), lambda: "")
        next(process for process in processes if process.environ().get("RANK") == "1").kill()
        require_gone(processes)
    assert "error: rank 1 of 2 was ended by SIGKILL" in fresh.log(STAGE)
    stopped = image("stopped", stop(fresh, "dvc", "Ctrl-C", trains(fresh)))
    fresh.run(*RUNS["dvc"])
    assert 0 < stopped == image("resumes", fresh.log(STAGE))
    assert fresh.hashes(STAGE) == undisturbed(committed, tmp_path, LONG, TWO) != {}
    assert (fresh.root / f"logs/{STAGE}-rank1.log").exists()
