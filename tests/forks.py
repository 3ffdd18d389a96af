"""Processes for tests: forks of one server that has imported everything once, which takes longer than what they do.

Python 3.11's server does not get `sys.path`, and passes over what it cannot import without a word: each process would
import for itself. So the server is started here, with the path in its environment.
"""

import multiprocessing
import os
import socket
from collections.abc import Callable
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).resolve().parents[1]
_CONTEXT = multiprocessing.get_context("forkserver")
# One server for all tests of a run, and what the loop imports when it needs it, so that no fork has to.
_PRELOADED = [
    "models.tokenizers.adversaries",
    "models.tokenizers.codebooks",
    "models.clip.clips",
    "training.together",
    "accelerate",
    "dvclive",
    "torch.distributed",
]


def _run(target: Callable[..., None], arguments: list[tuple[Any, ...]], patience: float) -> list[int | None]:
    """Return the exit codes of a function in as many processes as there are tuples, None for one out of patience."""
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


def in_ranks(
    member: Callable[..., None], folder: Path, count: int, *arguments: Any, ends: tuple[int, ...] = (0,)
) -> list[int | None]:
    """Run `member(folder, rank, count, *arguments)` as each of the ranks of a training over gloo, on one thread each.

    Returns their exit codes, each of `ends`; where it is another, the test fails with what they said. Nothing but a
    hang takes 600 s, and the test's own limit ends it.
    """
    folder.mkdir(exist_ok=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    codes = _run(_rank, [(member, folder, rank, count, port, arguments) for rank in range(count)], 600)
    assert all(code in ends for code in codes), "\n".join(path.read_text() for path in folder.glob("said-*.txt"))
    return codes


def _rank(
    member: Callable[..., None], folder: Path, rank: int, count: int, port: int, arguments: tuple[Any, ...]
) -> None:
    import torch

    with (folder / f"said-{rank}.txt").open("a", buffering=1) as said:
        os.dup2(said.fileno(), 1), os.dup2(said.fileno(), 2)
        os.environ |= {"CUDA_VISIBLE_DEVICES": "", "ACCELERATE_USE_CPU": "true"}
        if count > 1:
            os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(count)}
            os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        torch.set_num_threads(1)
        member(folder, rank, count, *arguments)
