"""The jobs of a sweep: the stale stages of each point's clone, as one graph.

A stage that several points have in common, with equal parameters, code and inputs, runs in the first of them. In the
others it waits for that one, and DVC then takes the outputs from the run cache.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import chdir
from hashlib import sha256
from pathlib import Path
from typing import Any

from darkroom.dag.fingerprint.stages import OUT
from darkroom.dag.fingerprint.stages import STAGE as CODE
from darkroom.params.section import PARAMS
from darkroom.params.stage import DVC, cut, file_name, read_yaml
from stages import Stages

DONE = "done/{point}/{stage}"  # a file of a job that is done
Job = dict[str, Any]


def jobs(points: Sequence[str], cluster: bool, per_node: int | None) -> tuple[list[Job], int | None]:
    """Return the jobs of all points, whose clones are folders of the working folder, and how many GPUs they may use."""
    listed: list[Job] = []
    first: dict[str, str] = {}  # by key, the job that runs the stage
    gpus = None
    for number, point in enumerate(points, 1):
        print(f"planning point {number} of {len(points)}", file=sys.stderr)
        with chdir(point):
            stages = Stages(True, cluster, per_node)
            keys = _keys(stages)
        gpus = stages.gpus
        for name in sorted(stages.stale, key=lambda name: -stages.ahead[name]):
            stage, _, item = name.partition("@")
            needed = sorted(each for each in stages.status.graph.successors(name) if each in stages.stale)
            done = DONE.format(point=point, stage=name)
            owner = first.setdefault(keys[name], done)
            with chdir(point):
                listed.append(
                    {
                        "rule": f"{point}_{name}",
                        "done": done,
                        "inputs": [DONE.format(point=point, stage=each) for each in needed] + [owner] * (owner != done),
                        "log": f"{point}/logs/{file_name(stage, item or None)}.log",
                        "threads": stages.threads(stage),
                        "nodes": stages.nodes(stage),
                        "gpu": stages.gpu(stage),
                        "seconds": round(stages.expected[name]) if owner == done else 1,
                        "priority": round(stages.ahead[name]),
                        "local": stages.is_local(stage) or owner != done,
                    }
                )
    return listed, gpus


def _keys(stages: Stages) -> Mapping[str, str]:
    """Return for each stale stage of the working folder a hash of its parameters, code and inputs.

    Inputs count by the hashes of the stages that make them, whether stale or not: after a kill, a stage may be done in
    one point and stale in another.
    """
    params, dvc = read_yaml(PARAMS), read_yaml(DVC)
    keys: dict[str, str] = {}

    def key(name: str) -> str:
        if name not in keys:
            stage, _, item = name.partition("@")
            values = {each: value for each, value in cut(stage, item or None, params, dvc).items() if each != "run"}
            deps = stages.status.stages[name].deps
            code = [Path(dep).read_text() if dep.startswith(f"{OUT}/") else dep for dep in deps]
            needed = [key(each) for each in sorted(stages.status.graph.successors(name)) if each != CODE]
            text = json.dumps([name, values, code, needed], sort_keys=True, default=str)
            keys[name] = sha256(text.encode()).hexdigest()
        return keys[name]

    return {name: key(name) for name in stages.stale}
