"""Runs stages in miniature, each in a process forked from one that has loaded what stages load.

What a process unpickles it imports: this module imports nothing that takes long.
"""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING

from darkroom.tools.plan.stage_plan import StagePlan

if TYPE_CHECKING:
    from darkroom.tools.plan.miniature import Miniature

Submit = Callable[[str, "Miniature"], Future[StagePlan]]


@contextmanager
def forks(count: int) -> Iterator[Submit]:
    """Start loading what stages load, and yield what runs a stage there, at most `count` at a time."""
    source = str(Path(__file__).resolve().parents[3])  # not what an installation elsewhere would give it
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [source, os.environ.get("PYTHONPATH")]))
    context = get_context("forkserver")
    context.set_forkserver_preload(["darkroom.tools.plan.libraries", "darkroom.tools.plan.body"])

    def run(name: str, on: "Miniature") -> StagePlan:
        answer, theirs = context.Pipe(duplex=False)
        process = context.Process(target=_rehearse, args=(theirs, name, on), daemon=False)
        process.start()
        theirs.close()
        try:
            found: StagePlan = answer.recv()
        except EOFError:  # the machine ran out of memory, say
            found = StagePlan(name, source="not measured", notes=[f"{name} was ended by a signal in miniature"])
        process.join()
        return found

    # Not a pool of processes: with `max_tasks_per_child` Python 3.11's waits for ever now and then.
    with ThreadPoolExecutor(count) as pool:
        pool.submit(context.Process(target=abs, args=(0,)).start)  # starts the process that loads
        yield lambda name, on: pool.submit(run, name, on)


def _rehearse(answer: Connection, name: str, on: "Miniature") -> None:
    from darkroom.tools.plan.body import rehearse

    answer.send(rehearse(name, on))
