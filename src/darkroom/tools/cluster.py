"""`darkroom cluster`: write a Snakemake profile for Slurm or Kubernetes, with the memory and time of each stage."""

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

import yaml
from typer import Option

from darkroom.artifacts.atomic import write_bytes
from darkroom.check.check import read_params
from darkroom.dag.stages import STAGES
from darkroom.errors import DarkroomError
from darkroom.params.stage import processes
from darkroom.tools import command
from darkroom.tools.plan.plan import planned
from darkroom.tools.plan.table import UNKNOWN, StagePlan

PROFILES = Path("profiles")
_BASES = {name: PROFILES / name / "config.yaml" for name in ("slurm", "kubernetes")}
_LIBRARIES = 2e9  # bytes of a process besides what its stage's body needs
_STARTS = 660.0  # seconds of a job besides the body, 360 of them since Slurm's SIGTERM may come so early
_HEADER = """# Written by `darkroom cluster`: memory (MB) and time (minutes) are {margin:g} times what `darkroom plan`
# measured where it ran, plus libraries and starts. Change what does not fit; the next call keeps this file as
# config.yaml.before. `--set-resources` on the command line replaces this whole list. The rest is from {base}.

"""


def resources(
    plans: Iterable[StagePlan], processes: Mapping[str, int], margin: float, gpu_partition: str | None = None
) -> dict[str, dict[str, Any]]:
    """Return `mem_mb`, `runtime` (minutes) and the partition of each rule, of the largest of its jobs.

    processes: of each rule on a node; a plan has the memory of one process.
    """
    rules: dict[str, dict[str, Any]] = {}
    for plan in plans:
        rule = rules.setdefault(stage := plan.stage.partition("@")[0], {})
        if gpu_partition and STAGES[stage].networks:
            rule["slurm_partition"] = repr(gpu_partition)
        if plan.source not in UNKNOWN:
            memory = math.ceil(processes[stage] * (margin * sum(plan.memory.values()) + _LIBRARIES) / 1e9) * 1000
            minutes = math.ceil((margin * plan.seconds + _STARTS) / 60)
            rule.update(mem_mb=max(memory, rule.get("mem_mb", 0)), runtime=max(minutes, rule.get("runtime", 0)))
    return {stage: rule for stage, rule in rules.items() if rule}


@command("Environment", "cluster", "Write a Snakemake profile with the memory and time of each stage.")
def cluster(
    name: Annotated[str, Option(help="name of the folder below profiles/")] = "cluster",
    partition: Annotated[str | None, Option(help="partition of the jobs")] = None,
    gpu_partition: Annotated[str | None, Option(help="partition of stages with networks")] = None,
    account: Annotated[str | None, Option(help="account of the jobs")] = None,
    per_node: Annotated[
        int | None, Option("--processes-per-node", min=1, help="processes of a training that share a node, as its GPUs")
    ] = None,
    margin: Annotated[float, Option(min=1.0, help="factor on measured memory and time")] = 2.0,
    kubernetes: Annotated[bool, Option("--kubernetes", help="for Kubernetes instead of Slurm")] = False,
) -> str:
    """Write `profiles/NAME/config.yaml`, and return what to do next.

    Raises:
        DarkroomError: NAME is a profile of the repository, an option of Slurm is given for Kubernetes, or a stage
            cannot be planned.
    """
    path = PROFILES / name / "config.yaml"
    if name in ("default", "slurm", "kubernetes", "accelerate", "sweep"):
        raise DarkroomError(f"profiles/{name} belongs to the repository: choose another --name.")
    if kubernetes and (partition or gpu_partition or account or per_node):
        raise DarkroomError("--kubernetes takes no partition, account or --processes-per-node: these are for Slurm.")
    base = _BASES["kubernetes" if kubernetes else "slurm"]
    print("planning all stages, which takes about a minute …", flush=True)
    result = planned(everything=True)
    assert result is not None
    settings = yaml.safe_load(base.read_text())
    given = {"slurm_partition": partition, "slurm_account": account}
    settings["default-resources"] += [f"{key}={value!r}" for key, value in given.items() if value]
    if per_node:
        settings["config"].append(f"processes_per_node={per_node}")
    params = read_params()
    count = {name: processes(params.get(name) or {}) for name in STAGES} | {"ingest": params["run"]["ingest_processes"]}
    on_node = {name: min(processes, per_node or processes) for name, processes in count.items()}
    settings["set-resources"] = resources(result.plans, on_node, margin, gpu_partition)
    text = _HEADER.format(margin=margin, base=base) + yaml.safe_dump(settings, sort_keys=False)
    if path.is_file():
        path.replace(path.with_name(f"{path.name}.before"))
    write_bytes(path, text.encode())
    unknown = [plan.stage for plan in result.plans if plan.source in UNKNOWN]
    lines = [f"{path} is written. Next: `snakemake --profile {path.parent}`. docs/how-to/cluster.md says what to know."]
    if partition and not gpu_partition and params["run"]["device"] != "cpu":
        lines.append(
            f"Stages with networks ask for GPUs in {partition}: --gpu-partition names another partition, and "
            "`run.device: cpu` asks for none."
        )
    if unknown:
        lines.append(f"Not measured here, so they get the default memory and time: {', '.join(unknown)}.")
    return "\n".join(lines)
