"""Runs the body of a stage: checks first, then threads, log and signals around it. Nothing here changes a byte."""

import contextlib
import errno
import importlib
import json
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from darkroom.artifacts.atomic import require_writable
from darkroom.check import check, schema
from darkroom.errors import DarkroomError
from darkroom.params import given, threads, validate
from darkroom.terminal import Bar, Tee
from darkroom.training.state import sweep

LOGS = Path("logs")


def set_threads(count: int) -> None:
    """Fix the number of CPU threads, before NumPy or torch is loaded: results depend on it, so no engine may set it."""
    for library in ("OMP", "OPENBLAS", "MKL", "NUMEXPR", "VECLIB_MAXIMUM"):
        os.environ[f"{library}_NUM_THREADS"] = str(count)


def choose_device(device: str) -> None:
    """Make `run.device` what torch and accelerate see, before they are loaded."""
    if device == "cpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
        os.environ["ACCELERATE_USE_CPU"] = "true"
    elif device.startswith("cuda:"):
        number = int(device.removeprefix("cuda:"))
        seen = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
        # A scheduler that gave this job devices 2 and 3 means device 3 by cuda:1.
        os.environ["CUDA_VISIBLE_DEVICES"] = seen[number] if number < len(seen) else "" if seen else str(number)
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")


def _own_checkout() -> None:
    source, here = Path(__file__).resolve(), Path.cwd().resolve()
    if here not in source.parents:
        raise DarkroomError(
            f"the code that runs ({source.parents[2]}) is not the code of this folder ({here}): "
            "start stages through `dvc repro` or `snakemake`, or with PYTHONPATH=src."
        )


def engine(ancestors: Sequence[Any]) -> list[Any]:
    """Return the processes between a stage and the DVC that started it, that one included, nearest first.

    What is above DVC, a shell or a terminal, may end while the work goes on. Empty where no DVC is found.
    """
    for place, process in enumerate(ancestors):
        words = [Path(word) for word in process.cmdline()[:3]]
        if any(word.name == "dvc" or word.parent.name == "dvc" for word in words):
            return list(ancestors[: place + 1])
    return []


def _watch_engine() -> None:
    """Stop the stage when the engine that started it is gone: DVC leaves its command behind when it is killed."""
    if "DVC_STAGE" not in os.environ:
        return
    import psutil

    watched = engine(psutil.Process().parents())

    def watch() -> None:
        while all(process.is_running() and process.status() != psutil.STATUS_ZOMBIE for process in watched):
            time.sleep(1)
        os.kill(os.getpid(), signal.SIGTERM)

    if watched:
        threading.Thread(target=watch, daemon=True).start()


def _note(event: str, name: str, **facts: Any) -> None:
    """Append a line to logs/runs.jsonl: the history of the stage bodies that really ran here, with their times."""
    line = json.dumps({"stage": name, "event": event, "time": round(time.time(), 3), **facts})
    with (LOGS / "runs.jsonl").open("a") as file:
        file.write(line + "\n")


def run_stage(stage: str, part: str | None) -> None:
    """Run one stage's body in the root of a clone, as its entry in dvc.yaml says.

    Raises:
        DarkroomError: the code is not this checkout's, params.yaml or dvc.yaml is not valid, or the body says what is
            wrong with its inputs.
    """
    _own_checkout()
    check()
    values = given(stage, part)
    params = validate(schema(stage), values)
    set_threads(threads(values[stage]))
    choose_device(values["run"]["device"])
    name = f"{stage}@{part}" if part else stage
    require_writable(LOGS / "runs.jsonl")
    with (LOGS / f"{name.replace('@', '-')}.log").open("w") as log, contextlib.ExitStack() as stack:
        bar = Bar()
        terminal = Tee(sys.stdout, log, f"[{name}] ", bar)
        stack.callback(terminal.clear)  # what follows, an error or a prompt, begins on a line of its own
        stack.enter_context(contextlib.redirect_stdout(terminal))
        stack.enter_context(contextlib.redirect_stderr(Tee(sys.stderr, log, f"[{name}] ", bar)))
        _watch_engine()
        sweep()
        _note("start", name)
        began = time.monotonic()
        body = importlib.import_module(f"darkroom.stages.{stage}").run
        try:
            body(params, part) if part else body(params)
        except DarkroomError as error:
            log.write(f"error: {error}\n")
            raise
        except OSError as error:
            traceback.print_exc(file=log)
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            raise DarkroomError(
                f"the disk is full ({error.filename or Path.cwd()}): free some space and run the same command again; "
                "nothing half-written was left behind."
            ) from error
        except Exception:
            traceback.print_exc(file=log)
            raise
        seconds = time.monotonic() - began
        _note("end", name, seconds=round(seconds, 3))
        print(f"done in {seconds:.1f} s")
