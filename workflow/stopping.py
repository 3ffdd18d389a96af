"""Forward a SIGTERM to Snakemake to the trainings that it has started.

Snakemake answers SIGTERM by waiting for the jobs that run, which is right for a stage of minutes. A training of days
would go on until the sender uses SIGKILL; with the signal, it writes a checkpoint and stops.
"""

import os
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress

import psutil

from darkroom.dag.stages import TRAININGS


def is_training(words: Sequence[str]) -> bool:
    """Return whether a command line is that of a training, not of a shell or an engine above it."""
    command = list(words[1:])
    return any(
        command[at : at + 2] == ["-m", "darkroom"] and command[at + 2] in TRAININGS for at in range(len(command) - 2)
    )


def trainings(above: psutil.Process) -> Iterator[psutil.Process]:
    """Yield the trainings below a process; what these have started themselves is theirs."""
    with suppress(psutil.Error):
        for child in above.children():
            with suppress(psutil.Error):
                if is_training(child.cmdline()):
                    yield child
                else:
                    yield from trainings(child)


def pass_on_sigterm(main: bool, cluster: bool) -> None:
    """Forward SIGTERM in Snakemake's main process; its own handler, set later, stays as it is.

    A job's Snakemake forwards it where it is the first process of a container, the only one to get it.

    With a cluster, this process gets a SIGINT instead: Snakemake then cancels its jobs, which sends them SIGTERM.
    Python writes the number of every signal that it handles to the wake-up descriptor, whichever handler runs.
    """
    if not main and os.getpid() != 1:
        return
    cluster = cluster and main
    if cluster and signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # it runs in the background of a script
        signal.signal(signal.SIGINT, signal.default_int_handler)
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)

    def listen() -> None:
        while numbers := os.read(reader, 64):
            if signal.SIGTERM in numbers and cluster:
                os.kill(os.getpid(), signal.SIGINT)
            elif signal.SIGTERM in numbers:
                for process in trainings(psutil.Process()):
                    with suppress(psutil.Error):
                        process.terminate()

    threading.Thread(target=listen, daemon=True).start()
