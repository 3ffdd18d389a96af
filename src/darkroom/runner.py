"""Run the body of a stage: check its inputs, set up threads, log and signals. Nothing here changes an output."""

import contextlib
import errno
import importlib
import json
import os
import platform
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, TextIO

import psutil

from darkroom.artifacts.atomic import require_writable
from darkroom.check.check import check, schema
from darkroom.dag.history import RUNS
from darkroom.dag.lock_file import lost_of, message
from darkroom.dag.stages import SHARED, STAGES, TRAININGS
from darkroom.data.remote import GIGABYTES
from darkroom.environment import choose_device, set_threads
from darkroom.errors import DarkroomError
from darkroom.params.section import PARAMS, validate
from darkroom.params.stage import address, file_name, processes, stage_params, threads
from darkroom.processes import gpus
from darkroom.processes.launch import Rank, is_task, launch, nodes, rank, reporting_errors, take_device
from darkroom.processes.stopping import engine, stoppable, watch
from darkroom.terminal.terminal import Tee
from darkroom.training.state import STARTED, Inputs, changed_since, declared, identity, key, sweep

LOGS = Path("logs")
_BESIDE_CATALOG = ("code", "ingest", "catalog", "train_scene_reader")  # may start before it has counted


def _own_checkout() -> None:
    source, folder = Path(__file__).resolve(), Path.cwd().resolve()
    if folder not in source.parents:
        raise DarkroomError(
            f"the code that runs ({source.parents[2]}) is not the code of this folder ({folder}): "
            "start stages through `dvc repro` or `snakemake`, or with PYTHONPATH=src."
        )


def machine() -> str:
    """Return the description of this machine in the history: its name, processor and cores."""
    parts = [platform.node(), platform.machine(), platform.processor()]
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        parts += sorted({line.partition(":")[2].strip() for line in lines if line.startswith("model name")})
    return f"{', '.join(filter(None, parts))}, {os.cpu_count()} cores"


def params_key(values: Mapping[str, Any]) -> str:
    """Return a short hash of all parameters of a stage, including `run`, which changes times."""
    return sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:16]


def run_id() -> str:
    """Return an id shared by all stages of one run of an engine: the process that started it, and when.

    The Snakefile and the `dvc` of .venv set it, also for jobs on other machines; otherwise it is DVC's process.
    """
    if run := os.environ.get("DARKROOM_RUN"):
        return run
    process = [psutil.Process(), *engine(psutil.Process().parents())][-1]
    return f"{process.pid} {process.create_time():.0f}"


def _note(event: str, name: str, **metadata: Any) -> None:
    """Append a line to logs/runs.jsonl: the history of the stage bodies that really ran here, with their times."""
    line = json.dumps({"stage": name, "event": event, "time": round(time.time(), 3), "run": run_id(), **metadata})
    with RUNS.open("a") as file:
        file.write(line + "\n")


def _require_cached(stage: str, item: str | None) -> None:
    """Raise an error if DVC has lost an input of this stage, which only a later run would make again.

    Raises:
        DarkroomError: an input is in dvc.lock and in no cache; names it and the stage that made it.
    """
    lost = lost_of(deps=declared(stage, item, ["deps"])) if "DVC_STAGE" in os.environ else {}
    if lost and not _without_commit():
        raise DarkroomError(message(lost))


def _require_hashed(stage: str, item: str | None) -> None:
    """Raise an error if the code has changed since the engine hashed it.

    Raises:
        DarkroomError: names what changed.
    """
    if "DVC_STAGE" in os.environ and (changed := changed_since(stage, item)):
        raise DarkroomError(
            f"the code has changed since this run started ({'; '.join(changed[:4])}), so the result would be recorded "
            "with the earlier code: run the same command again."
        )


def _without_commit() -> bool:
    """Return whether `dvc repro --no-commit` started this, which writes nothing to the cache."""
    for process in psutil.Process().parents():
        with contextlib.suppress(psutil.Error):  # it has ended, or is another user's
            if "--no-commit" in process.cmdline():
                return True
    return False


def _processes(stage: str, section: Mapping[str, Any], device: str, place: Rank | None) -> int:
    """Return the number of processes of a stage, which only params.yaml sets."""
    several = stage in TRAININGS or stage in SHARED
    count = processes(section) if several else 1
    if place is not None and (started := place.size) != count:
        reason = f"{PARAMS} sets {count}: change `processes` there" if several else "it runs in one"
        raise DarkroomError(f"{stage} was started with {started} processes, but {reason}.")
    if count > 1 and device not in ("auto", "cpu", "cuda"):
        raise DarkroomError(f"`run.device` is {device}, which {count} processes cannot share: use auto, cpu or cuda.")
    return count


def _take_gpus(stage: str, params: Any, count: int, place: Rank | None) -> None:
    """Wait for GPUs that no other stage of this machine uses, if there are any and the stage runs networks on them."""
    if params.run.device in ("cpu", "mps") or not STAGES[stage].networks or getattr(params, "idle", None):
        return
    if nodes() > 1 and count > 1 and not params.run.accelerate:
        return  # Slurm gives each node's GPUs to its ranks
    if place is None and (here := len(gpus.present())):
        gpus.take(min(count, here) if params.run.accelerate else count)  # accelerate may start some on other machines
    elif place is not None and place.supervisor is not None:
        gpus.share()


def _open_log(name: str, place: Rank | None) -> TextIO:
    """Return a new log of a stage, or with several processes, the log of this rank.

    A rank above 0 prints nothing on the terminal: output of C libraries also goes to the log.
    """
    if place is None or place.number == 0:
        path = LOGS / f"{name}.log"
        if place is None or place.supervisor is None:
            path.write_text("")
        return path.open("a")  # the supervisor and rank 0 both write
    log = (LOGS / f"{name}-rank{place.number}.log").open("w", buffering=1)
    for descriptor in (1, 2):
        os.dup2(log.fileno(), descriptor)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    return log


def _body(stage: str, item: str | None, params: Any, count: int, place: Rank | None) -> Callable[[], None]:
    """Return a function that runs the body, here or in several processes."""
    accelerate = params.run.accelerate if stage in TRAININGS else None
    if place is None and (count > 1 or accelerate):
        return lambda: launch([stage, *filter(None, [item])], count, accelerate)
    if count > 1:
        take_device(params.run.device)
    body = importlib.import_module(f"darkroom.stages.{stage}").run
    return (lambda: body(params, item)) if item else (lambda: body(params))


def run_stage(stage: str, item: str | None) -> None:
    """Run the body of a stage in the root of a clone, as its entry in dvc.yaml says.

    Raises:
        DarkroomError: the code is not this checkout's, params.yaml or dvc.yaml is not valid, or the body
            raised an error about its inputs.
        SystemExit: 143 or 130 after SIGTERM or Ctrl-C; 1 in a rank, after it reported its error to its supervisor.
    """
    place = rank()
    supervised = place is not None and place.supervisor is not None
    with stoppable(supervised), reporting_errors() if supervised else contextlib.nullcontext():
        if not is_task():  # Slurm ends the tasks of a step
            watch(place.supervisor if place else None)
        _run(stage, item, place)


def _run(stage: str, item: str | None, place: Rank | None) -> None:
    _own_checkout()
    check(counted=stage not in _BESIDE_CATALOG)
    values = stage_params(stage, item)
    inputs = Inputs(stage, item, values) if "DVC_STAGE" in os.environ else None
    params: Any = validate(schema(stage), values)
    count = _processes(stage, values.get(stage, {}), params.run.device, place)
    set_threads(threads(values.get(stage, {})))
    choose_device(params.run.device)
    os.environ[GIGABYTES] = str(params.run.cache_gb)  # for the readers of shards, also in processes that this starts
    name = address(stage, item)
    require_writable(RUNS)
    leads = place is None or (place.number == 0 and place.supervisor is None)  # keeps the history
    with _open_log(file_name(stage, item), place) as log, contextlib.ExitStack() as stack:
        stack.callback(gpus.release)
        if leads and inputs is not None and stage in TRAININGS + SHARED:
            os.environ[STARTED] = key(identity(stage, item, values))  # also for the processes that it starts
            stack.callback(os.environ.pop, STARTED, None)
        if place is None or place.number == 0:
            stack.enter_context(contextlib.redirect_stdout(Tee(sys.stdout, log, f"[{name}] ")))
            stack.enter_context(contextlib.redirect_stderr(Tee(sys.stderr, log, f"[{name}] ")))
        if leads:
            sweep()
            _require_cached(stage, item)
            _require_hashed(stage, item)
        with _faults(log, writes=leads):
            _take_gpus(stage, params, count, place)
        if leads:
            _note("start", name)
        began = time.monotonic()
        with _faults(log, writes=leads or (place is not None and place.number > 0)):
            _body(stage, item, params, count, place)()
            if leads and inputs is not None:
                inputs.require_same()
            if stage == "catalog":  # it has counted the images: too few, and no training starts
                check(counted=True)
        seconds = time.monotonic() - began
        if leads:
            work = sum(os.times()[:4])  # of this process and of those that it waited for
            _note(
                "end", name, seconds=round(seconds, 3), cpu=round(work, 3), machine=machine(), params=params_key(values)
            )
            print(f"done in {seconds:.1f} s")


@contextlib.contextmanager
def _faults(log: TextIO, writes: bool) -> Iterator[None]:
    """Log errors raised inside the block, and convert a full disk to a DarkroomError.

    writes: whether a DarkroomError is logged; the supervisor logs that of rank 0.
    """
    try:
        yield
    except DarkroomError as error:
        if writes:
            log.write(f"error: {error}\n")
        raise
    except OSError as error:
        traceback.print_exc(file=log)
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise DarkroomError(
            f"the disk is full ({error.filename or Path.cwd()}: {error.strerror}): free some space and run the same "
            "command again. No partial files were left behind."
        ) from error
    except Exception:
        traceback.print_exc(file=log)
        raise
