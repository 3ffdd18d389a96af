"""Start a training in several processes, and end them together.

It has its own supervisor instead of torchrun, which kills its workers 30 s after a signal, even while they write a
checkpoint, exits with 1 instead of 143 or 130, and leaves workers behind if it is killed (torch 2.15).

Each rank gets its place from the variables that torch.distributed and accelerate read (RANK, WORLD_SIZE and so on),
so a training started through `torchrun` or `accelerate launch` is a rank in the same way. In a Slurm job of several
nodes, the supervisor starts its ranks on all of them by `srun`.
"""

# No effect on any output: says which processes share a training, and which one this is

import contextlib
import json
import os
import signal
import socket
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import psutil

from darkroom.errors import DarkroomError
from darkroom.processes.stopping import handling

SUPERVISOR, STATUS, LAUNCHER = "DARKROOM_SUPERVISOR", "DARKROOM_STATUS", "DARKROOM_LAUNCHER"
_SRUN = "srun"  # as launcher
_SLURM = ("SLURM_JOB_ID", "SLURM_CONF", "SLURM_CLUSTER_NAME")  # the variables that `srun` needs
CONTINUES = "The same command continues from the last checkpoint."


@dataclass(frozen=True)
class Rank:
    """The place of this process among those of a training.

    number: from 0. size: their number. supervisor: the process that started it; None if that is not Darkroom.
    """

    number: int
    size: int
    supervisor: int | None


def nodes() -> int:
    """Return the number of nodes of the Slurm job of this stage, as its rule says; 1 outside of Slurm."""
    return int(os.environ.get("DARKROOM_NODES", 1))


def is_task() -> bool:
    """Return whether this is a rank that `srun` started, perhaps on another node than its supervisor."""
    return os.environ.get(LAUNCHER) == _SRUN


def rank() -> Rank | None:
    """Return this process's rank from its environment; None: it is not a rank."""
    if is_task():
        os.environ |= {"RANK": os.environ["SLURM_PROCID"], "LOCAL_RANK": os.environ["SLURM_LOCALID"]}
    supervisor = os.environ.get(SUPERVISOR)
    if supervisor is None and not {"RANK", "WORLD_SIZE"} <= os.environ.keys():
        return None
    number, size = (int(os.environ.get(name, default)) for name, default in (("RANK", 0), ("WORLD_SIZE", 1)))
    return Rank(number, size, None if supervisor is None else int(supervisor))


def take_device(device: str) -> None:
    """Give this rank the GPU of its number on this machine, or tell accelerate that the ranks share the CPU.

    Raises:
        DarkroomError: there are GPUs, but fewer than ranks.
    """
    import torch

    ranks = int(os.environ.get("LOCAL_WORLD_SIZE", os.environ["WORLD_SIZE"]))
    gpus = torch.cuda.device_count() if device != "cpu" else 0
    if 0 < gpus < ranks:
        raise DarkroomError(
            f"{ranks} processes need one GPU each, but there are {gpus}: lower `processes`, or set `run.device: cpu`."
        )
    if gpus:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    elif device == "auto" and torch.backends.mps.is_available():
        raise DarkroomError(f"{ranks} processes cannot share the GPU of this machine: set `run.device: cpu`.")
    elif device == "auto":
        os.environ["ACCELERATE_USE_CPU"] = "true"  # without it, accelerate leaves each rank to train alone


def write_status(kind: Literal["error", "traceback", "stop"], text: str) -> None:
    """Report why this rank ends to the supervisor: a DarkroomError, another error, or the code of a stop."""
    folder, number = Path(os.environ[STATUS]), os.environ.get("RANK", "0")
    with contextlib.suppress(OSError):  # the supervisor is gone
        (folder / f".{number}").write_text(json.dumps({"time": time.time(), "kind": kind, "text": text}))
        (folder / f".{number}").rename(folder / number)


@contextlib.contextmanager
def reporting_errors() -> Iterator[None]:
    """Report errors inside the block to the supervisor, which prints them once for all ranks.

    For torchrun, which accelerate starts, a rank that stops exits with 0: otherwise it would print a traceback, and
    after 30 s kill the others, one of which may be writing the checkpoint.

    Raises:
        SystemExit: always after an error.
    """
    try:
        yield
    except DarkroomError as error:
        write_status("error", str(error))
        raise SystemExit(1) from error
    except Exception as error:
        write_status("traceback", traceback.format_exc())
        raise SystemExit(1) from error
    except SystemExit as stop:
        if LAUNCHER not in os.environ or stop.code not in Ranks.STOPPED:
            raise
        write_status("stop", str(stop.code))
        raise SystemExit(0) from stop


def _free_port(address: str) -> str:
    with socket.socket() as probe:
        probe.bind((address, 0))
        return str(probe.getsockname()[1])


def environments(processes: int) -> list[dict[str, str]]:
    """Return the additional environment variables of each rank, all on this machine."""
    port = _free_port("127.0.0.1")
    # Gloo resolves the address of the host's name, which is missing or unreachable on many a laptop.
    loopback = next((name for _, name in socket.if_nameindex() if name.startswith("lo")), None)
    gloo = {"GLOO_SOCKET_IFNAME": os.environ.get("GLOO_SOCKET_IFNAME", loopback)} if loopback else {}
    everywhere = {"WORLD_SIZE": str(processes), "LOCAL_WORLD_SIZE": str(processes), **gloo}
    return [
        {"RANK": str(k), "LOCAL_RANK": str(k), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, **everywhere}
        for k in range(processes)
    ]


def srun(words: Sequence[str], processes: int) -> tuple[list[str], dict[str, str]]:
    """Return the command that starts all ranks on the nodes of this Slurm job, and their environment.

    Raises:
        DarkroomError: the processes cannot be spread evenly.
    """
    each, rest = divmod(processes, nodes())
    if rest:
        raise DarkroomError(
            f"{processes} processes cannot be spread over {nodes()} nodes: use a multiple of {nodes()}."
        )
    step = ["--overlap", f"--nodes={nodes()}", f"--ntasks={processes}", f"--ntasks-per-node={each}"]
    cores = max(1, int(os.environ.get("SLURM_CPUS_PER_TASK", each)) // each)
    step += [f"--cpus-per-task={cores}", "--cpu-bind=none", "--export=ALL"]
    step += ["--kill-on-bad-exit=0"]  # the supervisor ends the others
    environment = {
        LAUNCHER: _SRUN,
        "WORLD_SIZE": str(processes),
        "LOCAL_WORLD_SIZE": str(each),
        "MASTER_ADDR": os.environ.get("MASTER_ADDR", socket.gethostname()),
        "MASTER_PORT": _free_port(""),
    }
    return [_SRUN, *step, sys.executable, "-m", "darkroom", *words], environment


def launch(words: Sequence[str], processes: int, accelerate: str | None) -> None:
    """Run a stage in several processes, on all nodes of a Slurm job, or through accelerate if a file of it is given.

    Raises:
        DarkroomError: a rank failed; names the rank and the error.
        SystemExit: 143 or 130 after SIGTERM or Ctrl-C.
    """
    if accelerate is None and nodes() > 1:
        commands = [srun(words, processes)]
    elif accelerate is None:
        program = [sys.executable, "-m", "darkroom", *words]
        commands = [(program, environment) for environment in environments(processes)]
    elif Path(accelerate).is_file():
        launcher = [sys.executable, "-m", "accelerate.commands.launch", "--config_file", accelerate]
        launcher += ["--num_processes", str(processes), "-m", "darkroom", *words]
        commands = [(launcher, {LAUNCHER: "accelerate"})]
    else:
        raise DarkroomError(f"`run.accelerate` is {accelerate}, which is no file: create it with `accelerate config`.")
    supervise(commands, processes)


class Ranks:
    """The processes of some commands, which start with the block and all end with it.

    Each runs in a session of its own, so that a terminal's Ctrl-C, which goes to the whole foreground group, reaches a
    child through its parent only, and once.
    """

    STOPPED = (128 + signal.SIGINT, 128 + signal.SIGTERM)  # exit codes of a child that stopped on request
    GRACE = 10.0  # seconds for the others to fail by themselves once one has failed
    PATIENCE = 60.0  # seconds between SIGTERM and SIGKILL after that: a rank may be writing a checkpoint

    def __init__(self, commands: Sequence[tuple[Sequence[str], Mapping[str, str]]]) -> None:
        self._commands = commands
        self._children: list[psutil.Popen] = []
        self._signalled: set[tuple[int, int]] = set()  # (process id, signal) of each signal sent
        self.sent: set[tuple[int, int]] = set()  # (number of the child, signal) of each signal sent from here
        self._failed_at: float | None = None
        self.hurried = False  # by a second Ctrl-C

    def __enter__(self) -> "Ranks":
        try:
            for command, environment in self._commands:
                self._children.append(psutil.Popen(command, env=environment, start_new_session=True))
        except BaseException:
            self._kill()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self._kill()

    @property
    def codes(self) -> list[int]:
        """Exit codes, as in subprocess; after `wait`."""
        return [child.returncode for child in self._children]

    def wait(self, signals: Sequence[int]) -> None:
        """Wait until all children have ended, and pass on `signals`; a second Ctrl-C kills them."""
        while None in [child.poll() for child in self._children]:
            if signals[1:] and signal.SIGINT in signals[1:]:
                self.hurried = True
                self._kill()
            elif signals:
                self._signal(signals[0])
            self._follow(signals)
            time.sleep(0.1)

    def _follow(self, signals: Sequence[int]) -> None:
        """Once a child has failed: give the others some time, then signal them to stop, then kill them."""
        failed = [code for code in self.codes if code not in (None, 0, *self.STOPPED)]
        if not failed:
            return
        self._failed_at = self._failed_at or time.monotonic()
        waited = time.monotonic() - self._failed_at
        # A child that its signal ended had not started to train, or had finished: the others wait for it in vain.
        early = bool(signals) and -signals[0] in failed
        if waited > self.GRACE + (0 if early else self.PATIENCE):
            self._kill()
        elif waited > self.GRACE:
            self._signal(signal.SIGTERM)

    def _signal(self, number: int) -> None:
        """Send a signal to every rank once; a launcher may start its ranks later."""
        for place, child in enumerate(self._children):
            for process in _stages(child):
                if (process.pid, number) not in self._signalled:
                    self._signalled.add((process.pid, number))
                    self.sent.add((place, number))
                    with contextlib.suppress(psutil.Error):  # `srun` ends its tasks at SIGTERM, not at SIGINT
                        process.send_signal(signal.SIGTERM if child.args[0] == _SRUN else number)

    def _kill(self) -> None:
        """Kill every running child and its descendants, and wait for it."""
        for place, child in enumerate(self._children):
            if child.poll() is None:
                self.sent.add((place, signal.SIGKILL))
                with contextlib.suppress(psutil.Error):
                    for process in [child, *child.children(recursive=True)]:
                        with contextlib.suppress(psutil.Error):
                            process.kill()
                child.wait()


def _stages(child: psutil.Popen) -> Iterator[psutil.Process]:
    """Yield the child, or where it is accelerate's launcher, the stages that it started: torchrun cuts a stop short."""
    with contextlib.suppress(psutil.Error):
        if child.args[1:3] != ["-m", "accelerate.commands.launch"]:
            yield child
            return
        waiting = child.children()
        while waiting:
            process = waiting.pop()
            with contextlib.suppress(psutil.Error):
                if "darkroom" in process.cmdline()[1:4]:  # which ends the workers of its loader itself
                    yield process
                else:
                    waiting += process.children()


def supervise(commands: Sequence[tuple[Sequence[str], Mapping[str, str]]], ranks: int) -> None:
    """Run commands, each with an addition to the environment, until all have ended; one that fails ends the others.

    `commands` are one for each of the `ranks`, or one that starts all ranks itself.

    Raises:
        DarkroomError, SystemExit: as `launch` says.
    """
    shared = Path(".darkroom").resolve() if nodes() > 1 else None
    if shared:
        shared.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="darkroom-", dir=shared) as folder:
        # The rest of Slurm's variables are of the step that this process belongs to: `srun` would stay on its nodes.
        kept = {name: each for name, each in os.environ.items() if not name.startswith("SLURM_") or name in _SLURM}
        ours = (kept if shared else os.environ) | {SUPERVISOR: str(os.getpid()), STATUS: folder}
        signals: list[int] = []
        handlers = dict.fromkeys((signal.SIGTERM, signal.SIGINT), lambda number, frame: signals.append(number))
        with handling(handlers), Ranks([(line, {**ours, **extra}) for line, extra in commands]) as started:
            started.wait(signals)
        statuses = [_Status(int(path.name), **json.loads(path.read_text())) for path in Path(folder).glob("[0-9]*")]
        _raise_outcome(started, sorted(statuses, key=lambda status: status.time), signals, ranks)


@dataclass(frozen=True)
class _Status:
    rank: int
    time: float
    kind: str
    text: str


def _raise_outcome(started: Ranks, statuses: Sequence[_Status], signals: Sequence[int], ranks: int) -> None:
    """Raise the error or stop of the ranks; return if all of them finished.

    A rank that a signal ended, or that reported an error, comes first: the others failed because of it.
    """
    codes = started.codes
    if not any(codes):
        for status in statuses:
            raise SystemExit(int(status.text))  # only a stop exits with 0
        return
    several = len(codes) > 1
    requested = signals[0] if signals else None
    for number, code in enumerate(codes):
        if code < 0 and -code != requested and (number, -code) not in started.sent:
            name = signal.Signals(-code).name
            memory = " (the system does that if memory runs out)" if -code == signal.SIGKILL else ""
            process = f"rank {number} of {ranks}" if several else "the launcher"
            raise DarkroomError(f"{process} was ended by {name}{memory}, so the others were stopped. {CONTINUES}")
    errors = [status for status in statuses if status.kind == "error"]
    if errors:
        alone = errors[0].rank != 0 and len({status.rank for status in errors if status.text == errors[0].text}) < ranks
        raise DarkroomError((f"rank {errors[0].rank} of {ranks}: " if alone else "") + errors[0].text)
    failures = [status for status in statuses if status.kind == "traceback"]
    if requested is not None and (started.hurried or -requested in codes or not (several or failures)):
        raise SystemExit(128 + requested)
    if failures:
        print(failures[0].text, file=sys.stderr)
        raise DarkroomError(f"rank {failures[0].rank} of {ranks} failed, so the others were stopped. {CONTINUES}")
    for number, code in enumerate(codes):
        if code not in (0, *Ranks.STOPPED) and (number, -code) not in started.sent:
            process = f"rank {number} of {ranks}" if several else "the launcher"
            raise DarkroomError(f"{process} exited with {code}, so the others were stopped. {CONTINUES}")
    raise SystemExit(max(codes) if requested is None else 128 + requested)
