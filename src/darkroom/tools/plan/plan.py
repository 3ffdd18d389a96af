"""`darkroom plan`: parameters, operations, memory, disk and time of the stages that are out of date.

Everything is measured on this machine, on noise, with the networks, losses and optimizers that the stages use. No
artifact has to be there, and none is written.
"""

import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from darkroom.check.check import check, read_params
from darkroom.dag.stages import STAGES
from darkroom.environment import choose_device, set_threads
from darkroom.errors import DarkroomError
from darkroom.params.stage import given, processes, threads
from darkroom.runner import LOGS, machine, params_key
from darkroom.tools.plan.facts import Facts, gather
from darkroom.tools.plan.history import Run, last_runs
from darkroom.tools.plan.schedule import Job, side_by_side
from darkroom.tools.plan.stage_plan import StagePlan
from darkroom.tools.plan.stale import Dag, ask_dvc, lock_seconds
from darkroom.tools.plan.table import Whole, as_json, as_text

_BUSY = 1.2  # times their own work that calls may take, or others use the machine, too
_MEASURE = "darkroom.tools.plan.measure"
Measure = Callable[[Sequence[str], Facts], list[StagePlan]]


def choose(names: Sequence[str], known: Sequence[str], stale: set[str], everything: bool) -> list[str]:
    """Return the stages to plan: those named, stale or not, each with all its items; else the stale ones, or all.

    Raises:
        DarkroomError: a name is no stage.
    """
    for name in names:
        if not any(name in (stage, stage.partition("@")[0]) for stage in known):
            raise DarkroomError(f"there is no stage `{name}`; there are: {', '.join(known)}.")
    if names:
        return [stage for stage in known if stage in names or stage.partition("@")[0] in names]
    return list(known) if everything else [stage for stage in known if stage in stale]


def _cores() -> int:
    """Return the cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _cpus(name: str, params: Mapping[str, Any]) -> int:
    """Return the CPU threads of all processes of a stage, as Snakemake counts them."""
    stage = name.partition("@")[0]
    section = params.get(stage) or {}
    return threads(section) * (params["run"]["ingest_processes"] if stage == "ingest" else processes(section))


def _gpu(params: Mapping[str, Any]) -> bool:
    """Return whether networks run on a GPU, one stage at a time, as the rules take it."""
    return params["run"]["device"] != "cpu" and shutil.which("nvidia-smi") is not None


@contextmanager
def _measuring(count: int) -> Iterator[Measure]:
    """Start loading what stages load, in a process that others are forked from, and yield what measures in `count`."""
    source = str(Path(__file__).resolve().parents[3])  # not what an installation elsewhere would give it
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [source, os.environ.get("PYTHONPATH")]))
    context = get_context("forkserver")
    context.set_forkserver_preload([_MEASURE])
    with ProcessPoolExecutor(count, mp_context=context) as pool:
        pool.submit(int)  # starts the process that loads
        try:
            yield lambda names, facts: list(pool.map(_measure, names, [facts] * len(names)))
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _measure(name: str, facts: Facts) -> StagePlan:
    from darkroom.tools.plan.measure import measure

    return measure(name, facts)


def _measured(measure: Measure, names: Sequence[str], facts: Facts, params: Mapping[str, Any]) -> list[StagePlan]:
    """Return the plans of stages, measured side by side where two of them fit on the cores, one by one where not.

    So do they run: two networks on the cores of one machine slow each other down.
    """
    beside = [name for name in names if 2 * _cpus(name, params) <= _cores()]
    beside.sort(key=lambda name: not name.startswith("train_"))  # what takes longest first, so that both end together
    found = {plan.stage: plan for plan in measure(beside, facts)}
    for name in names:
        found.update({} if name in found else {name: measure([name], facts)[0]})
    return [found[name] for name in names]


def _comparable(last: Mapping[str, Run], dag: Dag) -> dict[str, Run]:
    """Return the last runs of stages that will read what they read then: nothing above them is out of date."""
    return {name: run for name, run in last.items() if not dag.needs.get(name, set()) & dag.stale}


def _settle(plans: Sequence[StagePlan], last: Mapping[str, Run]) -> float:
    """Give each plan its final seconds, and return how many times their own work the measured calls took.

    On a quiet machine the wall decides: it has what a thread waits for, too. On a busy one the work does. What ran here
    before under the same conditions takes as long again.
    """
    work = sum(plan.work for plan in plans)
    load = max(1.0, sum(plan.wall for plan in plans) / work) if work else 1.0
    for plan in plans:
        if load <= _BUSY and plan.source == "measured" and plan.work:
            plan.seconds *= max(1.0, plan.wall / plan.work)
        if (run := last.get(plan.stage)) is not None and run.alike:
            plan.measured_seconds = plan.seconds if plan.source == "measured" else None
            plan.seconds, plan.source = run.seconds, "last run"
    return load


def _whole(
    plans: Sequence[StagePlan],
    dag: Dag,
    params: Mapping[str, Any],
    start: float,
    asked: float,
    write: float,
    load: float,
) -> Whole:
    """Return what the stages take together, in either engine.

    `dvc repro` asks once what is stale, and with each body starts a process and writes dvc.lock; Snakemake starts DVC
    with each.

    Args:
        plans: the stages.
        dag: what follows from what.
        params: params.yaml.
        start: seconds of a stage's process before its body.
        asked: seconds in which DVC says what is stale.
        write: seconds in which it writes dvc.lock.
        load: see `Whole`.
    """
    cores = _cores()
    between = start + asked + write
    jobs = {
        plan.stage: Job(plan.seconds + between, _cpus(plan.stage, params), plan.gpu and _gpu(params)) for plan in plans
    }
    bodies = sum(plan.seconds for plan in plans)
    return Whole(
        bodies=bodies,
        dvc=asked + bodies + len(plans) * (start + write) if plans else 0.0,
        snakemake=start + asked + side_by_side(jobs, dag.needs, cores) if plans else 0.0,
        cores=cores,
        between=between,
        load=load,
    )


def _assumptions(keep: int, whole: Whole, found: Sequence[StagePlan]) -> list[str]:
    """Return what every plan assumes, in sentences without a full stop."""
    earlier = [plan.stage for plan in found if plan.source == "last run"]
    return [
        "a time is of a stage's body, as its last line says it; DVC and the start of a process take "
        f"{whole.between:.1f} s more under Snakemake",
        *(
            [
                f"{len(earlier)} times are of the last run, with these parameters on this machine, and not measured: "
                f"{', '.join(earlier)}"
            ]
            if earlier
            else []
        ),
        "memory is of the tensors of one process, without libraries",
        f"disk counts outputs twice, in the checkout and in DVC's cache, and a training's state {keep + 1} times: "
        "`run.keep`, and the one being written",
        "FLOPs count a multiplication and an addition as two; forward + backward where there is a backward pass",
        "several processes share a batch without loss, and checkpoints are written in the background",
        *(
            [
                f"others use this machine now: what was measured took {whole.load:.1f} times its own work; times are "
                f"of the work, as on a quiet machine, and with this load {whole.load:.1f} times as long"
            ]
            if whole.load > _BUSY
            else []
        ),
    ]


def plan(names: Sequence[str] = (), everything: bool = False, in_json: bool = False, history: bool = True) -> str:
    """Return the plan of the stages that are out of date, of those named, or of all.

    Args:
        names: stages.
        everything: all stages, stale or not.
        in_json: JSON instead of a table.
        history: take the time of a stage that ran here under the same conditions from its last run.

    Raises:
        DarkroomError: params.yaml or dvc.yaml is not valid, DVC cannot be asked, or a name is no stage.
    """
    check()
    start = time.process_time()  # what each stage does before its body
    params = read_params()
    set_threads(max(threads(params.get(stage) or {}) for stage in STAGES))  # of NumPy; torch's are set for each stage
    choose_device(params["run"]["device"])
    with _measuring(1 if _gpu(params) else min(2, _cores())) as measure:
        began = time.process_time()
        dag = ask_dvc()
        asked, write = time.process_time() - began, lock_seconds()
        chosen = choose(names, dag.stages, dag.stale, everything)
        if not chosen and not in_json:
            return "every stage is up to date: nothing would run. `darkroom plan --all` plans all stages anyway."
        facts = gather(dag.stale)
        plans = _measured(measure, chosen, facts, params)
    keys = {name: params_key(given(stage, item or None)) for name in chosen for stage, _, item in [name.partition("@")]}
    last = last_runs(LOGS / "runs.jsonl", machine(), keys)
    load = _settle(plans, _comparable(last, dag) if history else {})
    for each in plans:
        each.stale = each.stage in dag.stale
    whole = _whole(plans, dag, params, start, asked, write, load)
    assumed = [*facts.assumed, *_assumptions(params["run"]["keep"], whole, plans)]
    seconds = {name: run.seconds for name, run in last.items()}
    return (as_json if in_json else as_text)(plans, whole, seconds, assumed)
