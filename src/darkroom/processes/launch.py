"""Starts a training in several processes, and ends them together. Nothing here changes a byte.

A supervisor of our own and not torchrun, for three reasons. A stop must end with 143 or 130, as in one process, where
torchrun ends with 1 for whatever happened. It must leave the time that writing a checkpoint takes, where torchrun kills
after 30 s. And a person must read one sentence, where torchrun prints the tracebacks of all processes and its own.

A rank is told its place by the variables that torch.distributed and accelerate read (RANK, WORLD_SIZE and so on), so
a training that a person started through `torchrun` or `accelerate launch` is a rank in the same way.
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

from darkroom.errors import DarkroomError
from darkroom.processes.family import Family

SUPERVISOR, WORDS, LAUNCHER = "DARKROOM_SUPERVISOR", "DARKROOM_WORDS", "DARKROOM_LAUNCHER"
CONTINUES = "The same command continues from the last checkpoint."


@dataclass(frozen=True)
class Rank:
    """Which of the processes of a training this one is.

    number, size: counted from 0, of so many. supervisor: the process that started it, None where that is not Darkroom.
    """

    number: int
    size: int
    supervisor: int | None


def rank() -> Rank | None:
    """Return this process's rank, as its environment says, or None where it is no one's rank."""
    supervisor = os.environ.get(SUPERVISOR)
    if supervisor is None and not {"RANK", "WORLD_SIZE"} <= os.environ.keys():
        return None
    number, size = (int(os.environ.get(name, default)) for name, default in (("RANK", 0), ("WORLD_SIZE", 1)))
    return Rank(number, size, None if supervisor is None else int(supervisor))


def require_shareable(device: str, processes: int) -> None:
    """Check that several processes can share what `run.device` names.

    Raises:
        DarkroomError: it is one device.
    """
    if processes > 1 and device not in ("auto", "cpu", "cuda"):
        raise DarkroomError(
            f"`run.device` is {device}, which {processes} processes cannot share: take auto, cpu or cuda in "
            "params.yaml, and choose among GPUs by CUDA_VISIBLE_DEVICES."
        )


def take_device(device: str) -> None:
    """Give this rank the GPU of its number on this machine, or tell accelerate that the ranks share the CPU.

    Raises:
        DarkroomError: there are GPUs, and fewer than ranks.
    """
    import torch

    ranks = int(os.environ.get("LOCAL_WORLD_SIZE", os.environ["WORLD_SIZE"]))
    gpus = torch.cuda.device_count() if device != "cpu" else 0
    if 0 < gpus < ranks:
        raise DarkroomError(
            f"{ranks} processes need a GPU each, and there are {gpus}: lower `processes`, or take `run.device: cpu`."
        )
    if gpus:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    elif device == "auto" and torch.backends.mps.is_available():
        raise DarkroomError(f"{ranks} processes cannot share the GPU of this machine: take `run.device: cpu`.")
    elif device == "auto":
        os.environ["ACCELERATE_USE_CPU"] = "true"  # without it, accelerate leaves each rank to train alone


def leave_word(kind: Literal["error", "traceback", "stop"], text: str) -> None:
    """Leave for the supervisor what ends this rank: a DarkroomError, another error, or the code of a stop."""
    folder, number = Path(os.environ[WORDS]), os.environ.get("RANK", "0")
    with contextlib.suppress(OSError):  # the supervisor is gone
        (folder / f".{number}").write_text(json.dumps({"time": time.time(), "kind": kind, "text": text}))
        (folder / f".{number}").rename(folder / number)


@contextlib.contextmanager
def answerable() -> Iterator[None]:
    """Leave what goes wrong inside the block to the supervisor, who tells the person once for all ranks.

    For torchrun, which accelerate starts, a rank that stops ends well: it would print a traceback, and kill after 30 s
    the others, one of which may be writing the checkpoint.

    Raises:
        SystemExit: always where something went wrong.
    """
    try:
        yield
    except DarkroomError as error:
        leave_word("error", str(error))
        raise SystemExit(1) from error
    except Exception as error:
        leave_word("traceback", traceback.format_exc())
        raise SystemExit(1) from error
    except SystemExit as stop:
        if LAUNCHER not in os.environ or stop.code not in Family.STOPPED:
            raise
        leave_word("stop", str(stop.code))
        raise SystemExit(0) from stop


def environments(processes: int) -> list[dict[str, str]]:
    """Return what the environment of each rank says besides this process's own: all on this machine."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    # Gloo asks for the address of the host's name, which is missing or unreachable on many a laptop.
    loopback = next((name for _, name in socket.if_nameindex() if name.startswith("lo")), None)
    gloo = {"GLOO_SOCKET_IFNAME": os.environ.get("GLOO_SOCKET_IFNAME", loopback)} if loopback else {}
    everywhere = {"WORLD_SIZE": str(processes), "LOCAL_WORLD_SIZE": str(processes), **gloo}
    return [
        {"RANK": str(k), "LOCAL_RANK": str(k), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), **everywhere}
        for k in range(processes)
    ]


def launch(words: Sequence[str], processes: int, accelerate: str | None) -> None:
    """Run a stage in several processes, or through accelerate where a configuration file is given.

    Args:
        words: the stage, and its item where it has one, as they stand on the command line.
        processes: how many.
        accelerate: the configuration file.

    Raises:
        DarkroomError: a rank failed; says which and how.
        SystemExit: 143 or 130 after SIGTERM or Ctrl-C.
    """
    if accelerate is None:
        program = [sys.executable, "-m", "darkroom", *words]
        supervise([(program, environment) for environment in environments(processes)], processes)
        return
    if not Path(accelerate).is_file():
        raise DarkroomError(f"`run.accelerate` is {accelerate}, which is no file: write it with `accelerate config`.")
    launcher = [sys.executable, "-m", "accelerate.commands.launch", "--config_file", accelerate]
    supervise(
        [([*launcher, "--num_processes", str(processes), "-m", "darkroom", *words], {LAUNCHER: "accelerate"})],
        processes,
    )


def supervise(commands: Sequence[tuple[Sequence[str], Mapping[str, str]]], ranks: int) -> None:
    """Run commands, each with an addition to the environment, until all have ended; one that fails ends the others.

    Args:
        commands: one for each rank; or one that starts all ranks itself.
        ranks: how many there are.

    Raises:
        DarkroomError, SystemExit: as `launch` says.
    """
    with tempfile.TemporaryDirectory(prefix="darkroom-") as words:
        ours = os.environ | {SUPERVISOR: str(os.getpid()), WORDS: words}
        with _listening() as signals, Family([(line, {**ours, **extra}) for line, extra in commands]) as family:
            family.wait(signals)
        _judge(family, _words(Path(words)), signals, ranks)


@contextlib.contextmanager
def _listening() -> Iterator[list[int]]:
    """Yield a list that collects SIGTERM and SIGINT inside the block."""
    signals: list[int] = []
    ends = (signal.SIGTERM, signal.SIGINT)
    before = {number: signal.signal(number, lambda number, frame: signals.append(number)) for number in ends}
    try:
        yield signals
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@dataclass(frozen=True)
class _Word:
    rank: int
    time: float
    kind: str
    text: str


def _words(folder: Path) -> list[_Word]:
    """Return what ranks left, the first one first."""
    found = [_Word(int(path.name), **json.loads(path.read_text())) for path in folder.glob("[0-9]*")]
    return sorted(found, key=lambda word: word.time)


def _judge(family: Family, words: Sequence[_Word], signals: Sequence[int], ranks: int) -> None:
    """Raise what the end of the ranks means; return where all of them finished.

    A rank that a signal ended, or that said what is wrong, comes first: the others then failed for want of it.
    """
    codes = family.codes
    if not any(codes):
        for word in words:
            raise SystemExit(int(word.text))  # only a stop ends well
        return
    several = len(codes) > 1
    asked = signals[0] if signals else None
    for number, code in enumerate(codes):
        if code < 0 and -code != asked and (number, -code) not in family.sent:
            name = signal.Signals(-code).name
            memory = " (the system does that where memory runs out)" if -code == signal.SIGKILL else ""
            who = f"rank {number} of {ranks}" if several else "the launcher"
            raise DarkroomError(f"{who} was ended by {name}{memory}, and the others were stopped. {CONTINUES}")
    told = [word for word in words if word.kind == "error"]
    if told:
        alone = told[0].rank != 0 and len({word.rank for word in told if word.text == told[0].text}) < ranks
        raise DarkroomError((f"rank {told[0].rank} of {ranks}: " if alone else "") + told[0].text)
    faults = [word for word in words if word.kind == "traceback"]
    if asked is not None and (family.hurried or -asked in codes or not (several or faults)):
        raise SystemExit(128 + asked)
    if faults:
        print(faults[0].text, file=sys.stderr)
        raise DarkroomError(f"rank {faults[0].rank} of {ranks} failed, and the others were stopped. {CONTINUES}")
    for number, code in enumerate(codes):
        if code not in (0, *Family.STOPPED) and (number, -code) not in family.sent:
            who = f"rank {number} of {ranks}" if several else "the launcher"
            raise DarkroomError(f"{who} ended with {code}, and the others were stopped. {CONTINUES}")
    raise SystemExit(max(codes) if asked is None else 128 + asked)
