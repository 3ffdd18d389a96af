"""Run tasks, each in a process forked from one that has imported the libraries of stages.

Unpickling imports modules, so this module has only fast imports, and a task is a name.
"""

import os
import sys
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

from darkroom.artifacts.atomic import require_writable
from darkroom.kinds import imported

Submit = Callable[..., Future[Any]]  # of a task, MODULE:FUNCTION, and its arguments


class Lost(NamedTuple):
    """The answer of a task without a result: the reason, as the end of a sentence."""

    why: str


@contextmanager
def forks(count: int, *modules: str, load: bool = True) -> Iterator[Submit]:
    """Import the libraries of stages and the `modules` of tasks once, and yield a runner of `count` tasks at a time.

    load: whether to start importing at once, in parallel with the caller.

    A task that ends without an answer returns `Lost`.
    """
    source = str(Path(__file__).resolve().parents[3])  # not that of another installation
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [source, os.environ.get("PYTHONPATH")]))
    context = get_context("forkserver")
    context.set_forkserver_preload(["darkroom.tools.plan.libraries", *modules])

    def run(task: str, *given: Any) -> Any:
        answer, theirs = context.Pipe(duplex=False)
        process = context.Process(target=_answer, args=(theirs, task, given), daemon=False)
        process.start()
        theirs.close()
        try:
            result = answer.recv()
        except EOFError:
            result = None
        process.join()
        if result is None and (process.exitcode or 0) < 0:
            return Lost("was killed by a signal, possibly because memory ran out")
        return Lost(f"ended with exit status {process.exitcode}") if result is None else result

    # Not a pool of processes: with `max_tasks_per_child`, that of Python 3.11 sometimes hangs.
    with ThreadPoolExecutor(count) as pool:
        if load:
            pool.submit(context.Process(target=abs, args=(0,)).start)  # starts the process that loads
        yield lambda task, *given: pool.submit(run, task, *given)


def _answer(answer: Connection, task: str, given: tuple[Any, ...]) -> None:
    try:
        result = imported(task)(*given)
    except Exception as error:
        traceback.print_exc()
        result = Lost(f"ended with {type(error).__name__}: {error}")
    answer.send(result)


@contextmanager
def quiet(log: Path) -> Iterator[None]:
    """Redirect the output of this process and its children to a log."""
    require_writable(log)
    sys.stdout.flush()
    sys.stderr.flush()
    saved = {number: os.dup(number) for number in (1, 2)}
    try:
        with log.open("wb") as file:
            for number in saved:
                os.dup2(file.fileno(), number)
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for number, terminal in saved.items():
            os.dup2(terminal, number)
            os.close(terminal)
