"""Lives of the worker, as real processes: started by the fork server or by an interpreter of their own, and killed."""

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

from torture.arguments import SEEN, Arguments

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 600  # seconds that anything may take before the test gives up


def environment() -> dict[str, str]:
    """Return the environment of every life: this checkout's code, one thread."""
    path = os.pathsep.join(str(ROOT / name) for name in ("src", "tests"))
    threads = {f"{library}_NUM_THREADS": "1" for library in ("OMP", "OPENBLAS", "MKL")}
    return {**os.environ, **threads, "PYTHONPATH": path}


class Diary:
    """What the lives of a training wrote of each pass: (phase, first position, loss), in the order of time."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "diary"

    def length(self) -> int:
        """Return how many passes were written."""
        return self._path.stat().st_size // SEEN.size if self._path.exists() else 0

    def passes(self, start: int = 0) -> list[tuple[int, int, float]]:
        """Return the passes from number `start` on."""
        if not self._path.exists():
            return []
        with self._path.open("rb") as file:
            file.seek(start * SEEN.size)
            data = file.read()
        return list(SEEN.iter_unpack(data[: len(data) // SEEN.size * SEEN.size]))


class Life:
    """One process of the worker: its `pid`, also its process group, and `status`, None while it goes on."""

    def __init__(self, arguments: Arguments) -> None:
        self.arguments = arguments
        self.began = time.monotonic()
        self.diary = Diary(Path(arguments.folder))
        self.first = self.diary.length()  # number of its first pass

    pid: int
    status: int | None = None

    def poll(self, timeout: float = 0.0) -> int | None:
        """Wait at most so long for the end, and return the exit status, negative for a signal."""
        raise NotImplementedError

    def wait(self) -> int:
        """Return the exit status."""
        if self.poll(PATIENCE) is None:
            raise TimeoutError(f"the life {self.pid} does not end; see {self.arguments.folder}/log")
        return self.status

    def kill(self, group: bool) -> set[psutil.Process]:
        """SIGKILL to the trainer, alone or with its group; return what it leaves behind."""
        children = set()
        with contextlib.suppress(psutil.NoSuchProcess):
            children = set(psutil.Process(self.pid).children())
        for kill in (os.killpg, os.kill) if group else (os.kill,):  # a life of a millisecond has no group yet
            with contextlib.suppress(ProcessLookupError):
                kill(self.pid, signal.SIGKILL)
        self.wait()
        return children


class Forked(Life):
    """A life out of the fork server."""

    def __init__(self, address: str, arguments: Arguments) -> None:
        super().__init__(arguments)
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(address)
        self._socket.sendall(arguments.json().encode() + b"\n")
        self._answer = b""
        while b"\n" not in self._answer:
            self._read()
        self.pid = int(self._answer.split()[0])

    def _read(self) -> None:
        more = self._socket.recv(64)
        if not more:
            raise RuntimeError("the fork server is gone")
        self._answer += more

    def poll(self, timeout: float = 0.0) -> int | None:
        end = time.monotonic() + timeout
        while self._answer.count(b"\n") < 2:
            if not select.select([self._socket], [], [], max(0, end - time.monotonic()))[0]:
                return None
            self._read()
        if self.status is None:
            self.status = int(self._answer.split()[1])
            self._socket.close()
        return self.status


class Fresh(Life):
    """A life in an interpreter of its own."""

    def __init__(self, arguments: Arguments) -> None:
        super().__init__(arguments)
        command = [sys.executable, "-m", "torture.worker", arguments.json()]
        self._process = subprocess.Popen(command, env=environment(), start_new_session=True)
        self.pid = self._process.pid

    def poll(self, timeout: float = 0.0) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.status = self._process.wait(timeout) if timeout else self._process.poll()
        return self.status


@contextlib.contextmanager
def fork_server(folder: Path) -> Iterator[str]:
    """Yield the address of a fork server that is ready."""
    address = str(folder / "socket")
    command = [sys.executable, "-m", "torture.server", address]
    with subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE) as server:
        try:
            if server.stdout.readline() != b"ready\n":
                raise RuntimeError("the fork server did not start; its message stands above")
            yield address
        finally:
            server.terminate()
