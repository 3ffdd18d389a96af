"""A training is stopped in every way that a person, a terminal or a system has, through both engines, and continues."""

import os
import pty
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import psutil
import pytest

from dag.sandbox import Sandbox, side_by_side

Stories = dict[str, Future]
# A training of some seconds that writes no checkpoint unless it is stopped.
LONG = {
    "run": {"at_risk": 1_000_000},
    "train_extractor": {"training": {"images": 16_000, "log_every": 320, "validate_every": 8_000}},
}
TWO = {"train_extractor": {"training": {"processes": 2, "images": 25_600}}}
RUNS = {
    "dvc": ("dvc", "repro", "train_extractor"),
    "snakemake": ("snakemake", "--cores", "2", "models/extractor"),
}
ENDS = {
    "dvc": ("SIGTERM", "SIGKILL", "Ctrl-C", "closed terminal"),
    "snakemake": ("SIGTERM", "SIGKILL", "Ctrl-C"),
}
CASES = [(engine, end) for engine, ends in ENDS.items() for end in ends]
QUICK = {("dvc", "Ctrl-C"), ("dvc", "closed terminal"), ("snakemake", "SIGTERM")}  # the others: `make test-all`
IN_TIME = 15  # seconds
# Makes a terminal, its standard input, the one that it works on, as a shell would find it.
ON_TERMINAL = "import os, sys; os.login_tty(0); os.execvp(sys.argv[1], sys.argv[1:])"


@pytest.fixture(scope="module")
def stories(committed: Sandbox, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Stories:
    """What becomes of the trainings that the tests of this run ask for, stopped and continued, two at a time."""
    told: dict[str, Callable[[Sandbox], object]] = {
        f"{engine} {end}": partial(stop, engine=engine, end=end)
        for engine, end in CASES
        if any(item.name.endswith(f"[{engine}-{end}]") for item in request.session.items)
    }
    told |= {"undisturbed": leave, "two, undisturbed": partial(leave, changes=TWO), "two": disturb_two}
    told |= {"killed": kill_training}
    copies = {name: committed.copy(tmp_path_factory.mktemp("signals") / "a clone with spaces") for name in told}
    return side_by_side({name: partial(tell, copies[name]) for name, tell in told.items()})


def leave(sandbox: Sandbox, changes: dict[str, Any] | None = None) -> Sandbox:
    """Train undisturbed."""
    sandbox.edit(LONG)
    sandbox.edit(changes or {})
    sandbox.run(*RUNS["dvc"])
    return sandbox


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


def log(sandbox: Sandbox) -> str:
    """Return what the training has told in its log."""
    path = sandbox.root / "logs/train_extractor.log"
    return path.read_text() if path.exists() else ""


def image(pattern: str, text: str) -> int:
    """Return the image that a log names, 0 where it names none."""
    found = re.search(pattern + r" at image ([\d,]+)", text)
    return int(found[1].replace(",", "")) if found else 0


def alive(process: psutil.Process) -> bool:
    """Return whether a process goes on; one that nobody waited for does not."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except (psutil.NoSuchProcess, IndexError):  # IndexError: it ended while psutil read of it
        return False


def wait_until(true: Callable[[], bool], seconds: float, why: Callable[[], str]) -> None:
    """Wait until something is true, and fail after so many seconds."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, why()
        time.sleep(0.05)


def stop(sandbox: Sandbox, engine: str, end: str) -> tuple[Sandbox, str, str]:
    """Stop a training of an engine in some way, then run the same command; return the logs of both."""
    sandbox.edit(LONG)
    (sandbox.root / "logs/train_extractor.log").unlink()
    if end in ("Ctrl-C", "closed terminal"):
        with on_a_terminal(sandbox, *RUNS[engine]) as terminal:
            processes = begun(sandbox, terminal.run, lambda: terminal.shown.decode(errors="replace"))
            if end == "Ctrl-C":
                terminal.type(b"\x03")
                require_gone(processes)
    else:
        with sandbox.start(*RUNS[engine]) as run:
            processes = begun(sandbox, run, lambda: "")
            run.send_signal(signal.Signals[end])  # the engine alone
            require_gone(processes)
    require_gone(processes)
    first = log(sandbox)
    if (engine, end) == ("snakemake", "SIGKILL"):
        sandbox.snakemake("--unlock")
    sandbox.run(*RUNS[engine])
    return sandbox, first, log(sandbox)


def kill_training(sandbox: Sandbox) -> tuple[Sandbox, str]:
    """Kill a training, and not its engine, after its first checkpoint; return its log at the end of the same run."""
    sandbox.edit(LONG)
    sandbox.edit({"run": {"at_risk": 1}})
    (sandbox.root / "logs/train_extractor.log").unlink()
    with sandbox.start(*RUNS["snakemake"]) as run:
        processes = begun(sandbox, run, lambda: "")
        checkpoints = partial((sandbox.root / ".darkroom/state").glob, "train_extractor-*/images-*")
        wait_until(lambda: any(checkpoints()), 60, lambda: log(sandbox))
        next(process for process in processes if process.cmdline()[2:] == ["darkroom", "train_extractor"]).kill()
        assert run.wait(timeout=300) == 0
    return sandbox, log(sandbox)


def disturb_two(sandbox: Sandbox) -> tuple[Sandbox, list[str]]:
    """Kill one of two processes, then press Ctrl-C, then let the training end; return the log of each run."""
    sandbox.edit(LONG)
    sandbox.edit(TWO)
    path, logs = sandbox.root / "logs/train_extractor.log", []
    path.unlink()
    with sandbox.start(*RUNS["dvc"]) as run:
        processes = begun(sandbox, run, lambda: "")
        next(process for process in processes if process.environ().get("RANK") == "1").kill()
        require_gone(processes)
    logs.append(log(sandbox))
    path.unlink()
    with on_a_terminal(sandbox, *RUNS["dvc"]) as terminal:
        processes = begun(sandbox, terminal.run, lambda: terminal.shown.decode(errors="replace"))
        terminal.type(b"\x03")
        require_gone(processes)
    logs.append(log(sandbox))
    sandbox.run(*RUNS["dvc"])
    return sandbox, [*logs, log(sandbox)]


def begun(sandbox: Sandbox, run: subprocess.Popen[bytes], shown: Callable[[], str]) -> list[psutil.Process]:
    """Wait until a run trains, and return it and all processes below it."""
    wait_until(lambda: "images/s" in log(sandbox) or run.poll() is not None, 90, shown)
    assert run.poll() is None, shown()
    engine = psutil.Process(run.pid)
    return [engine, *engine.children(recursive=True)]


def require_gone(processes: list[psutil.Process]) -> None:
    """Fail where one of some processes goes on for longer than it should."""
    gone = lambda: not any(alive(process) for process in processes)  # noqa: E731
    wait_until(gone, IN_TIME, lambda: f"still there: {[process for process in processes if alive(process)]}")


@pytest.mark.parametrize(
    ("engine", "end"), [pytest.param(*case, marks=() if case in QUICK else pytest.mark.slow) for case in CASES]
)
def test_a_training_stops_with_a_checkpoint_and_the_same_command_continues(
    stories: Stories, engine: str, end: str
) -> None:
    """Bit for bit: what comes out is what an undisturbed training leaves."""
    sandbox, first, second = stories[f"{engine} {end}"].result()
    assert 0 < image("stopped", first) < LONG["train_extractor"]["training"]["images"], first
    assert image("resumes", second) == image("stopped", first), second
    assert sandbox.stale("train_extractor") == set()
    undisturbed = stories["undisturbed"].result()
    assert sandbox.hashes("train_extractor") == undisturbed.hashes("train_extractor") != {}


def test_snakemake_continues_a_training_that_was_killed(stories: Stories) -> None:
    sandbox, log = stories["killed"].result()
    assert image("resumes", log) > 0
    assert sandbox.hashes("train_extractor") == stories["undisturbed"].result().hashes("train_extractor") != {}


def test_two_processes_stop_as_one_and_continue(stories: Stories) -> None:
    """One that is killed takes the other along, Ctrl-C costs nothing, and no bit is lost."""
    sandbox, logs = stories["two"].result()
    assert "error: rank 1 of 2 was ended by SIGKILL" in logs[0]
    assert 0 < image("stopped", logs[1]) == image("resumes", logs[2]), logs[1:]
    assert sandbox.hashes("train_extractor") == stories["two, undisturbed"].result().hashes("train_extractor") != {}
    assert (sandbox.root / "logs/train_extractor-rank1.log").exists()
