"""`darkroom plan`: estimate parameters, operations, memory, disk space and time of the stale stages.

Every stage runs for real in miniature on this machine. Artifacts are neither required nor written.
"""

import heapq
import time
from collections.abc import Mapping, Sequence, Set
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field
from typing import Annotated, Any

from typer import Argument, Option

from darkroom.check.check import check, read_params
from darkroom.dag.fingerprint.stages import STAGE as CODE
from darkroom.dag.history import RUNS, Run, last_runs
from darkroom.dag.records import engine_runs
from darkroom.dag.repo import lock_seconds, observe
from darkroom.dag.stages import STAGES
from darkroom.environment import choose_device, set_threads
from darkroom.errors import DarkroomError
from darkroom.params.section import PARAMS
from darkroom.params.stage import DVC, cut, processes, read_yaml, threads
from darkroom.processes import gpus
from darkroom.runner import machine, params_key
from darkroom.tools import command, nearest
from darkroom.tools.cores import core_count
from darkroom.tools.plan.forks import Lost, Submit, forks
from darkroom.tools.plan.miniature import IMAGES, Miniature, count_images, ingested, scratch
from darkroom.tools.plan.stored import EARLIER, store, stored
from darkroom.tools.plan.stored import keys as stored_keys
from darkroom.tools.plan.table import SKIPPED, UNKNOWN, StagePlan, Whole, as_json, as_text, grown

REHEARSE = "darkroom.tools.plan.rehearsal:rehearse"
_MEANWHILE = (
    "stages are running in this checkout, so nothing was measured; times are from earlier runs and plans; "
    "use `darkroom plan --no-history` to measure now"
)
_BUSY = 1.2  # ratio of wall time to work, above which other processes use the machine
_IMPORTS = time.process_time()  # seconds of the imports so far, which each stage also does


@dataclass(frozen=True)
class Dag:
    """The stages that have a command.

    running: a note for each running stage, as a part of a sentence.
    """

    stages: list[str]  # their names, in the order of the DAG
    stale: set[str]  # those that are out of date. A stage below a stale one is stale too: it reads what will change
    needs: dict[str, set[str]]  # all stages above each
    running: dict[str, str] = field(default_factory=dict)


def _place(name: str) -> tuple[int, str]:
    stage, _, item = name.partition("@")
    return (list(STAGES).index(stage) if stage in STAGES else len(STAGES), item)


def ask_dvc() -> Dag:
    """Return the stages of the DAG.

    Raises:
        DarkroomError: DVC cannot read the repository.
    """
    status = observe()
    known = status.stages.keys() - {CODE}
    needs = {name: status.needs(name) & known for name in known}
    running = {name: text for name in known if (text := status.runs(name))}
    return Dag(sorted(known, key=_place), status.stale & known, needs, running)


def choose(
    names: Sequence[str], known: Sequence[str], stale: set[str], everything: bool, kind: str = "stage"
) -> list[str]:
    """Return the stages to plan: the named ones, stale or not, with all their items; else the stale ones, or all.

    kind: the kind of name, for the message.

    Raises:
        DarkroomError: a name is not a stage.
    """
    for name in names:
        if not any(name in (stage, stage.partition("@")[0]) for stage in known):
            raise DarkroomError(f"there is no {kind} `{name}`; {nearest(name, known)}")
    if names:
        return [stage for stage in known if stage in names or stage.partition("@")[0] in names]
    return list(known) if everything else [stage for stage in known if stage in stale]


def _cpus(name: str, params: Mapping[str, Any]) -> int:
    """Return the number of CPU threads of all processes of a stage, as Snakemake counts them."""
    stage = name.partition("@")[0]
    section = params.get(stage) or {}
    return threads(section) * (params["run"]["ingest_processes"] if stage == "ingest" else processes(section))


def _gpu(params: Mapping[str, Any]) -> bool:
    """Return whether networks run on GPUs, as in the Snakemake rules."""
    return params["run"]["device"] not in ("cpu", "mps") and bool(gpus.present())


def in_miniature(
    submit: Submit, names: Sequence[str], on: Miniature, dag: Dag, params: Mapping[str, Any]
) -> dict[str, StagePlan]:
    """Return the plans of stages and their dependencies, run in miniature in the order of the DAG.

    Two stages run in parallel if both fit on the cores, and one by one with a GPU, as in the real DAG: two networks on
    the cores of one machine slow each other down.
    """
    cores, single = core_count(), _gpu(params)
    waiting = [name for name in dag.stages if name in names or any(name in dag.needs[each] for each in names)]
    waiting.sort(key=lambda name: -sum(name in needs for needs in dag.needs.values()))  # most needed first
    plans = {name: StagePlan(name) for name in (f"ingest@{part}" for part in on.ready)}
    waiting = [name for name in waiting if name not in plans]
    running: dict[Future[StagePlan], str] = {}
    while waiting or running:
        for name in list(waiting):
            if not dag.needs[name] <= plans.keys():
                continue
            busy = sum(_cpus(each, params) for each in running.values())
            if running and (single or busy + _cpus(name, params) > cores):
                break  # smaller stages do not overtake it, or it would wait until the end
            waiting.remove(name)
            if any(plans[each].source in UNKNOWN for each in dag.needs[name]):
                plans[name] = StagePlan(name, source="not measured")
            else:
                running[submit(REHEARSE, name, on)] = name
        for done in wait(running, return_when=FIRST_COMPLETED).done:
            name = running.pop(done)
            answer = done.result()
            if isinstance(answer, Lost):
                answer = StagePlan(name, source="not measured", notes=[f"{name} {answer.why}, in miniature"])
            plans[name] = answer
    return plans


def _comparable(last: Mapping[str, Run], dag: Dag) -> dict[str, Run]:
    """Return the last runs of stages with unchanged inputs: nothing above them is out of date."""
    return {name: run for name, run in last.items() if not dag.needs.get(name, set()) & dag.stale}


def _rest(plans: Sequence[StagePlan]) -> float:
    """Turn measured seconds into those on an idle machine; return the ratio of wall time to work of the measured calls.

    On an idle machine, the wall time counts, which includes waiting; on a busy one, the work.
    """
    work = sum(plan.work for plan in plans)
    load = max(1.0, sum(plan.wall for plan in plans) / work) if work else 1.0
    for plan in plans:
        if load <= _BUSY and plan.source == "measured" and plan.work:
            plan.seconds *= max(1.0, plan.wall / plan.work)
    return load


def _recall(plans: Sequence[StagePlan], last: Mapping[str, Run]) -> None:
    """Set the seconds of each stage that ran here under the same conditions: it takes the same time again."""
    for plan in plans:
        if plan.source != SKIPPED and (run := last.get(plan.stage)) is not None and run.alike:
            plan.seconds, plan.source = run.seconds, "last run"


def _assumptions(total: int, scale: int, keep: int, whole: Whole, plans: Sequence[StagePlan]) -> list[str]:
    """Return the assumptions of a plan, as sentences without a full stop."""
    images = "all of them" if scale == 1 else f"1 in {scale:,} and 1 in {2 * scale:,} of them, extrapolated linearly"
    sentences = [
        f"{total:,} images; each stage ran on {images}, trainings for a few optimizer steps",
        f"times are of the stages only; under Snakemake, DVC and process start add {whole.between:.1f} s to each",
        "memory is per process, without libraries; FLOPs count a multiplication and an addition as two",
        f"disk counts outputs twice, in the checkout and in DVC's cache, and a training's state {keep + 1} times",
    ]
    if earlier := [plan.stage for plan in plans if plan.source == "last run"]:
        sentences.append(f"{len(earlier)} times are from the last run with these parameters here: {', '.join(earlier)}")
    if measured := sum(plan.source == EARLIER for plan in plans):
        sentences.append(
            f"{measured} times were measured here before, with these settings; `--no-history` repeats that"
        )
    if whole.load > _BUSY:
        sentences.append(f"other processes use this machine: with this load, times are {whole.load:.1f} times as long")
    return sentences


@dataclass(frozen=True)
class Job:
    """A stage as a job of an engine."""

    seconds: float  # from its start to its end, the engine's own part included
    threads: int  # cores that it takes
    gpu: bool = False  # whether it takes a GPU


def side_by_side(jobs: Mapping[str, Job], needs: Mapping[str, Set[str]], cores: int, gpus: int = 1) -> float:
    """Return the total seconds of jobs that each start once their dependencies have ended and cores and GPUs are free.

    Of several ready jobs, the first in `jobs` starts: list scheduling, which `snakemake --cores N` approximates. A job
    that requests more cores than available gets all.

    Names in `needs` that are not jobs are already done.
    """
    waits = {name: set(needs.get(name, ())) & jobs.keys() for name in jobs}
    ready = [name for name, needed in waits.items() if not needed]
    running: list[tuple[float, str]] = []
    now, free = 0.0, cores
    while ready or running:
        for name in list(ready):
            requested = min(jobs[name].threads, cores)
            if requested <= free and jobs[name].gpu <= gpus:
                ready.remove(name)
                free, gpus = free - requested, gpus - jobs[name].gpu
                heapq.heappush(running, (now + jobs[name].seconds, name))
        now, done = heapq.heappop(running)
        free, gpus = free + min(jobs[done].threads, cores), gpus + jobs[done].gpu
        for name, needed in waits.items():
            if done in needed:
                needed.remove(done)
                ready += [] if needed else [name]
    return now


@dataclass(frozen=True)
class Planned:
    """The results for the chosen stages."""

    plans: list[StagePlan]  # of each stage, in the order of the DAG
    whole: Whole  # what they take together
    assumed: list[str]  # sentences
    needs: dict[str, set[str]]  # the stages above each
    jobs: dict[str, Job]  # each as an engine runs it


def planned(
    names: Sequence[str] = (), everything: bool = False, history: bool = True, earlier: bool = True
) -> Planned | None:
    """Return the plan of the stale, named or all stages; None if there are none.

    Args:
        names: stages.
        everything: all stages, stale or not.
        history: use the time of the last run of a stage that ran here under the same conditions, and measure
            nothing while an engine runs stages.
        earlier: use plans measured here before with the same code, images and parameters.

    Raises:
        DarkroomError: params.yaml or dvc.yaml is not valid, DVC fails, or a name is not a stage.
    """
    began = time.process_time()
    check()
    start = _IMPORTS + time.process_time() - began  # each stage also does this before its body
    params = read_params()
    set_threads(max(threads(params.get(stage) or {}) for stage in STAGES))  # of NumPy; torch's are set for each stage
    choose_device(params["run"]["device"])
    measure = not (history and engine_runs())
    with forks(1 if _gpu(params) else min(2, core_count()), REHEARSE.partition(":")[0], load=measure) as submit:
        began = time.process_time()
        dag = ask_dvc()
        if measure:  # again, since the first time DVC hashes new inputs, which it does not for each stage
            began = time.process_time()
            ask_dvc()
        check(counted="catalog" not in dag.stale)
        query, write = time.process_time() - began, lock_seconds() if measure else 0.0
        chosen = choose(names, dag.stages, dag.stale, everything)
        if not chosen:
            return None
        parts = count_images(dag.stale)
        total = sum(count for _, count in parts.values())
        scale = -(-total // IMAGES)
        files = read_yaml(PARAMS), read_yaml(DVC)
        split = ((name, *name.partition("@")[::2]) for name in dag.stages)
        read = {name: cut(stage, item or None, *files) for name, stage, item in split}
        keys = stored_keys(dag.needs, read, parts)
        before = stored() if earlier else {}
        known = {name: before[keys[name]] for name in chosen if keys[name] in before}
        new = [name for name in chosen if name not in known]
        runs: list[dict[str, StagePlan]] = []
        if not measure:
            runs.append({name: StagePlan(name, source="not measured") for name in new})
        for fewer in ((scale, 2 * scale) if scale > 1 else (1,)) if measure and new else ():
            ready = ingested(parts, dag.stale | set(new)) if scale == 1 else set()
            with scratch(ready) as folder:
                runs.append(in_miniature(submit, new, Miniature(folder, parts, fewer, ready), dag, params))
        plans = [known[name] if name in known else grown(runs[0][name], runs[-1][name], scale) for name in chosen]
    load = _rest(plans)
    if load <= _BUSY and not engine_runs():
        store({keys[each.stage]: each for each in plans if each.source in ("measured", SKIPPED) and not each.notes})
    if history:
        last = last_runs(RUNS, machine(), {name: params_key(read[name]) for name in chosen})
        _recall(plans, _comparable(last, dag))
    for each in plans:
        each.stale = each.stage in dag.stale
        each.notes += [f"{each.stage} {dag.running[each.stage]}"] if each.stage in dag.running else []
    single, between = _gpu(params), start + query + write
    jobs = {each.stage: Job(each.seconds + between, _cpus(each.stage, params), each.gpu and single) for each in plans}
    bodies, cores = sum(each.seconds for each in plans), core_count()
    # `dvc repro` queries once what is stale; for each body, it starts a process and writes dvc.lock.
    dvc = query + bodies + len(plans) * (start + write)
    snakemake = start + query + side_by_side(jobs, dag.needs, cores, max(1, len(gpus.present())))
    whole = Whole(bodies, dvc, snakemake, cores, between, load)
    assumed = _assumptions(total, scale, params["run"]["keep"], whole, plans) if measure else [_MEANWHILE]
    return Planned(plans, whole, assumed, dag.needs, jobs)


@command("Train", "plan", "Estimate the memory, disk space and time of the stale stages.")
def plan(
    stages: Annotated[list[str] | None, Argument(help="stages to plan, stale or not; default: the stale ones")] = None,
    everything: Annotated[bool, Option("--all", help="plan all stages, stale or not")] = False,
    in_json: Annotated[bool, Option("--json", help="print JSON")] = False,
    history: Annotated[bool, Option(help="use times of earlier runs and plans here; during a run, only those")] = True,
) -> str:
    """Return the result of `planned` as a table or JSON. Raises the same errors."""
    result = planned(stages or (), everything, history, earlier=history)
    if result is None and not in_json:
        return "all stages are up to date, so nothing would run. Use `darkroom plan --all` to plan all stages anyway."
    result = result or Planned([], Whole(0.0, 0.0, 0.0, core_count(), 0.0, 1.0), [], {}, {})
    return (as_json if in_json else as_text)(result.plans, result.whole, result.assumed)
