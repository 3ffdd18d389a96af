"""The stages of dvc.yaml as Snakemake inputs and outputs.

DVC knows by content what is out of date, Snakemake by time. So DVC is asked once, when the Snakefile is read: the
inputs of a fresh stage are marked `ancient`, and a stale stage that waits for no other stale stage gets one more input,
a marker that the rule `stale` writes on every run. Snakemake's own propagation does the rest.

What DVC answers depends on the fingerprints of code. If the source changed, the stage `code` runs here first, or with
`-n` its result is computed in memory. `code` has no rule, and its outputs are no rule's inputs.
"""

import os
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import networkx as nx
from snakemake.exceptions import WorkflowError
from snakemake.io import ancient, directory
from snakemake.logging import logger

from darkroom.check.check import check, read_params, schema
from darkroom.dag import parents
from darkroom.dag.dvc import take_turn
from darkroom.dag.fingerprint.stages import STAGE as CODE
from darkroom.dag.history import RUNS, last_runs
from darkroom.dag.lock_file import mend
from darkroom.dag.lock_file import message as lost_message
from darkroom.dag.repo import Status, observe, read_status
from darkroom.dag.stages import STAGES, TRAININGS
from darkroom.errors import DarkroomError
from darkroom.params.section import PARAMS, validate
from darkroom.params.stage import (
    DVC,
    OUTPUTS,
    address,
    file_name,
    paths,
    processes,
    read_yaml,
    related,
    spread_over,
    stage_entry,
    stage_params,
    threads,
)
from darkroom.processes import gpus
from interrupted import clear

MARKER = ".snakemake/stale/{stage}"
_SHORT = 5.0  # seconds of a stage that does not train
_AROUND = 1.5  # seconds of a job before and after the body of its stage
# Images per second of small networks on a core; of tokenizers, `kl`.
_RATES = {"sample_generator": 20, "train_decoder": 200, "train_prior": 2000, "train_tokenizer": 50}
_RATE = 400  # of other trainings
# These run nothing.
_LOOKS = {"-n", "-np", "--dag", "--dry", "--dry-run", "--dryrun", "--filegraph", "--lint", "--list", "--list-rules"}
_LOOKS |= {"--detailed-summary", "--report", "--rulegraph", "--summary", "--unlock"}


class Stages:
    """dvc.yaml, resolved once, and which of its stages are stale.

    Args:
        ask: whether to ask DVC what is stale: yes in the main process; a job that Snakemake starts was chosen already.
        cluster: whether jobs run on other machines, whose GPUs this one does not see.
        per_node: the processes of a stage that share a node of the cluster; None: all.

    Raises:
        WorkflowError: params.yaml, dvc.yaml or dvc.lock is not valid, or DVC cannot read the state of the repository.
    """

    def __init__(self, ask: bool = True, cluster: bool = False, per_node: int | None = None) -> None:
        self._cluster, self._per_node = cluster, per_node
        try:
            check()
            self._params, self._dvc = read_params(), read_yaml(DVC)
            if ask and (message := mend()):
                logger.warning(message)
            status = _status(ask)
            if status.lost:  # do not make them again
                raise DarkroomError(lost_message(status.lost))
        except DarkroomError as error:
            raise WorkflowError(str(error)) from error
        except OSError as error:  # of DVC's settings in HOME, most likely
            raise WorkflowError(f"{error}. If that is in HOME, set HOME to a folder that you can read.") from error
        self.names = [name for name in self._dvc["stages"] if name != CODE]
        self.status = status
        self.all = sorted(out for name, stage in status.stages.items() for out in stage.outs if name != CODE)
        self.stale = status.stale
        self.roots = self.stale - status.waiting
        self.expected = _expected(status.graph)
        self.ahead = _longest(status.graph, self.expected)
        if ask:
            clear({out for name, stage in status.stages.items() if name not in self.stale for out in stage.outs})

    def outputs(self, name: str) -> list[str]:
        """Return the outputs of a stage; `{item}` stands for the part or U-Net of one that runs for each."""
        names = {**self._params, "key": "{item}"}
        declared = paths(stage_entry(self._dvc, name), OUTPUTS, names)
        return [path if Path(path).suffix else directory(path) for path in declared]

    def file_name(self, name: str) -> str:
        """Return the prefix of the names of a stage's logs; `{item}` stands for the part or U-Net."""
        return file_name(name, "{item}" if spread_over(self._dvc, name) else None)

    def inputs(self, name: str) -> Callable[[Mapping[str, str]], list[str]]:
        """Return the input function of a stage: the outputs of other stages that it reads."""

        def files(wildcards: Mapping[str, str]) -> list[str]:
            stage = self._address(name, wildcards)
            if stage not in self.status.stages:
                raise WorkflowError(f"{stage} is not a stage of {DVC} with the entries of {PARAMS}.")
            mark = str if stage in self.stale else ancient
            marked = [mark(out) for dep in self.status.stages[stage].deps for out in self._overlapping(dep)]
            return marked + [MARKER.format(stage=stage)] * (stage in self.roots)

        return files

    def priority(self, name: str) -> int:
        """Return the expected seconds of the longest path from a stage to the end, including itself."""
        return round(max(seconds for stage, seconds in self.ahead.items() if stage.partition("@")[0] == name))

    def seconds(self, name: str) -> Callable[[Mapping[str, str]], int]:
        """Return the function of the resource `seconds`: the expected seconds of each job of a stage."""
        return lambda wildcards: round(self.expected[self._address(name, wildcards)])

    def threads(self, name: str) -> int:
        """Return the CPU threads of all processes of a stage, as its section of params.yaml says."""
        shared = self._params["run"]["ingest_processes"] if name == "ingest" else processes(self._params[name])
        return threads(self._params[name]) * shared

    def start_parents(self, main: bool) -> None:
        """Start the parents of the processes of all stages, unless Snakemake runs nothing.

        main: whether this is the main process; a job on a cluster starts its own processes, in its own allocation.
        """
        if not main:
            os.environ[parents.NAME] = ""
        elif self.stale and not looks():
            names = [each.partition("@")[0] for each in self.stale]
            networks = sum(STAGES[name].networks and not self._is_idle(name) for name in names)
            parents.start([parents.LIGHT, *[parents.NETWORKS] * (networks > 1 and not self._cluster)])

    @cached_property
    def gpus(self) -> int | None:
        """The number of GPUs that stages may use; None: as many as they need, of a cluster."""
        device = self._params["run"]["device"]
        if device in ("cpu", "mps"):
            return 0
        return None if self._cluster else gpus.per_gpu() * len(gpus.present()[: 1 if ":" in device else None])

    def gpu(self, name: str) -> int:
        """Return the GPUs of a stage, one for each process; 0 if it has no networks, nothing to do, or no GPU is here.

        Raises:
            WorkflowError: it is to run, and needs more than this machine has.
        """
        if not STAGES[name].networks or self.gpus == 0 or self._is_idle(name):
            return 0
        count = processes(self._params[name])
        if self.gpus is None or count <= self.gpus:
            return count
        is_stale = any(each.partition("@")[0] == name for each in self.stale)
        if is_stale and not self._params["run"].get("accelerate") and not looks():
            raise WorkflowError(f"{name} needs {count} GPUs, one for each of its `processes`; here are {self.gpus}.")
        return self.gpus

    def nodes(self, name: str) -> dict[str, int | str]:
        """Return Slurm's resources of a stage whose processes need several nodes; empty for others.

        `threads` are of all its processes, and Slurm's `tasks` one for each node: Darkroom starts its own on them.
        `mpi` keeps its `srun` out of another step, which would get a stop's SIGTERM and kill the processes.
        """
        count = processes(self._params[name]) if STAGES[name].networks else 1
        if not self._per_node or count <= self._per_node:
            return {}
        nodes = -(-count // self._per_node)
        if count % nodes:
            raise WorkflowError(f"{name}: {count} processes cannot be spread over {nodes} nodes: use a multiple.")
        cores = -(-self.threads(name) // nodes)
        return {"mpi": "srun", "nodes": nodes, "tasks": nodes, "tasks_per_gpu": 0, "cpus_per_task": cores}

    def is_local(self, name: str) -> bool:
        """Return whether a stage of a cluster's run has so little to do that it runs where Snakemake was started."""
        return self._cluster and ((name != "ingest" and not STAGES[name].networks) or self._is_idle(name))

    def _is_idle(self, name: str) -> bool:
        """Return whether a training has nothing to do."""
        runs = [each for each in self.status.stages if each.partition("@")[0] == name]
        return name in TRAININGS and all(getattr(_parameters(each), "idle", None) for each in runs)

    def _address(self, name: str, wildcards: Mapping[str, str]) -> str:
        return address(name, wildcards["item"] if spread_over(self._dvc, name) else None)

    def _overlapping(self, dep: str) -> list[str]:
        """Return the outputs that overlap with a dependency."""
        return [out for out in self.all if related(dep, out)]


def looks() -> bool:
    """Return whether Snakemake was called for something that runs nothing."""
    return bool(_LOOKS & {word.partition("=")[0] for word in sys.argv})


def _status(ask: bool) -> Status:
    """Return what is out of date: without locks if Snakemake runs nothing, and empty if DVC is not asked."""
    if ask and looks():
        return observe()
    if ask:
        take_turn("snakemake")
    return read_status(ask)


def _expected(names: Iterable[str]) -> dict[str, float]:
    """Return the seconds of each stage's last whole run here; without one, a guess."""
    known = {name: run.seconds + _AROUND for name, run in last_runs(RUNS, "", {}).items() if run.complete}
    return {name: known[name] if name in known else _guess(name) for name in names}


def _guess(name: str) -> float:
    """Estimate the seconds of a stage that has not run here: of trainings and `sample_generator` by their images."""
    stage, _, item = name.partition("@")
    rate = _RATES.get(stage, _RATE)
    if stage == "sample_generator":
        return float(_parameters(name).sample_generator.common.images / rate)
    if stage not in TRAININGS:
        return _SHORT
    params = _parameters(name)
    if getattr(params, "idle", None):
        return _AROUND
    section = getattr(params, stage)
    training = section.training_of(item) if item else getattr(section, "own_training", section.training)
    return float(training.images / rate)


def _parameters(name: str) -> Any:
    """Return the validated parameters of a stage, or of a run of it (STAGE@ITEM)."""
    stage, _, item = name.partition("@")
    return validate(schema(stage), stage_params(stage, item or None))


def _longest(graph: nx.DiGraph, seconds: Mapping[str, float]) -> dict[str, float]:
    """Return the seconds of the longest path from each stage. The edges of `graph` lead to what a stage needs."""
    ahead: dict[str, float] = {}
    for name in nx.topological_sort(graph):
        ahead[name] = seconds[name] + max((ahead[each] for each in graph.predecessors(name)), default=0)
    return ahead
