"""Child processes that end together: a signal reaches each of them once, and one that fails takes the others along."""

# No effect on any output: starts and ends the processes of a training

import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from types import TracebackType

import psutil


class Family:
    """The processes of some commands, started on entering the block; none is left after it.

    Each runs in a session of its own, so that a terminal's Ctrl-C, which goes to the whole foreground group, reaches a
    child through its parent only, and once.
    """

    STOPPED = (128 + signal.SIGINT, 128 + signal.SIGTERM)  # exit codes of a child that stopped because it was asked
    GRACE = 10.0  # seconds for the others to fail by themselves once one has failed
    PATIENCE = 60.0  # seconds between SIGTERM and SIGKILL after that: a rank may be writing a checkpoint

    def __init__(self, commands: Sequence[tuple[Sequence[str], Mapping[str, str]]]) -> None:
        self._commands = commands
        self._children: list[psutil.Popen] = []
        self._asked: set[tuple[int, int]] = set()  # which process got which signal
        self.sent: set[tuple[int, int]] = set()  # which child, by its number, got which signal from here
        self._failed_at: float | None = None
        self.hurried = False  # by a second Ctrl-C

    def __enter__(self) -> "Family":
        try:
            for command, environment in self._commands:
                self._children.append(psutil.Popen(command, env=environment, start_new_session=True))
        except BaseException:
            self._kill()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._kill()

    @property
    def codes(self) -> list[int]:
        """Exit codes, as subprocess gives them; after `wait`."""
        return [child.returncode for child in self._children]

    def wait(self, signals: Sequence[int]) -> None:
        """Wait until all children have ended, passing on what appears in `signals`; a second Ctrl-C kills."""
        while None in [child.poll() for child in self._children]:
            if signals[1:] and signal.SIGINT in signals[1:]:
                self.hurried = True
                self._kill()
            elif signals:
                self._ask(signals[0])
            self._follow(signals)
            time.sleep(0.1)

    def _follow(self, signals: Sequence[int]) -> None:
        """Once a child has failed: leave the others some time, then ask them to stop, then kill them."""
        failed = [code for code in self.codes if code not in (None, 0, *self.STOPPED)]
        if not failed:
            return
        self._failed_at = self._failed_at or time.monotonic()
        waited = time.monotonic() - self._failed_at
        # One that its signal ended had not begun to train, or was done: the others wait for it in vain.
        early = bool(signals) and -signals[0] in failed
        if waited > self.GRACE + (0 if early else self.PATIENCE):
            self._kill()
        elif waited > self.GRACE:
            self._ask(signal.SIGTERM)

    def _ask(self, number: int) -> None:
        """Send a signal to every rank that has not got it; a launcher may start its ranks only later."""
        for place, child in enumerate(self._children):
            for process in _ranks(child):
                if (process.pid, number) not in self._asked:
                    self._asked.add((process.pid, number))
                    self.sent.add((place, number))
                    with suppress(psutil.Error):
                        process.send_signal(number)

    def _kill(self) -> None:
        """Kill every child that goes on, and all that it started, and wait for it."""
        for place, child in enumerate(self._children):
            if child.poll() is None:
                self.sent.add((place, signal.SIGKILL))
                with suppress(psutil.Error):
                    for process in [child, *child.children(recursive=True)]:
                        with suppress(psutil.Error):
                            process.kill()
                child.wait()


def _ranks(child: psutil.Popen) -> Iterator[psutil.Process]:
    """Yield the child, or where it is accelerate's launcher, the stages that it started: torchrun cuts a stop short."""
    with suppress(psutil.Error):
        if child.args[1:3] != ["-m", "accelerate.commands.launch"]:
            yield child
            return
        waiting = child.children()
        while waiting:
            process = waiting.pop()
            with suppress(psutil.Error):
                if "darkroom" in process.cmdline()[1:4]:  # its loader's workers are its own affair
                    yield process
                else:
                    waiting += process.children()
