"""Processes for tests: forks of one server that has imported everything once, which takes longer than what they do.

Python 3.11's server does not get `sys.path`, and passes over what it cannot import without a word: each process would
import for itself. So the server is started here, with the path in its environment.
"""

import multiprocessing
import os
from collections.abc import Callable
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).resolve().parents[1]
_CONTEXT = multiprocessing.get_context("forkserver")
# One server for all tests of a run, and what the loop imports when it needs it, so that no fork has to.
_PRELOADED = ["recipes.adversaries", "training.together", "accelerate", "dvclive", "torch.distributed"]


def in_processes(target: Callable[..., None], arguments: list[tuple[Any, ...]], patience: float) -> list[int | None]:
    """Run a function in as many processes as there are tuples of arguments, and return their exit codes.

    Args:
        target: of a module in tests.
        arguments: for each process.
        patience: seconds that each may take; one that takes longer has no exit code.
    """
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(str(_ROOT / name) for name in ("src", "tests"))
    try:
        _CONTEXT.set_forkserver_preload(_PRELOADED)
        forkserver.ensure_running()
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before
    runs = [_CONTEXT.Process(target=target, args=each) for each in arguments]
    for run in runs:
        run.start()
    for run in runs:
        run.join(patience)
    return [run.exitcode for run in runs]
