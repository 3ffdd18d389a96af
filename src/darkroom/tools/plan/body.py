"""The real body of one stage, run in miniature under meters, in a process of its own."""

import contextlib
import importlib
import json
import resource
import time
import traceback
from pathlib import Path
from typing import Any

import torch

from darkroom.artifacts.manifest import NAME
from darkroom.check.check import schema
from darkroom.dag.stages import TRAININGS
from darkroom.errors import DarkroomError
from darkroom.params.section import validate
from darkroom.params.stage import OUTPUTS, given
from darkroom.tools.plan.meter import Meter, clock
from darkroom.tools.plan.miniature import Miniature, enter, small
from darkroom.tools.plan.rehearsal import Rehearsal, TooLargeError
from darkroom.tools.plan.table import SKIPPED, StagePlan
from darkroom.training.guards import is_out_of_memory
from darkroom.training.state import declared


def rehearse(name: str, on: Miniature) -> StagePlan:
    """Run the body of a stage, or of one of its items (STAGE@ITEM), in miniature and return its plan."""
    stage, _, item = name.partition("@")
    enter(on.folder, download=stage == "ingest")
    plan, meter = StagePlan(name), Meter()
    training = Rehearsal(meter, on.scale, plan)
    wall, children = time.perf_counter(), _children()
    began = clock()
    log = on.folder / "logs" / f"{name}.log"
    params: Any = None
    with log.open("w") as said, contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            params = small(validate(schema(stage), given(stage, item or None)), on.parts, on.scale)
            body = importlib.import_module(f"darkroom.stages.{stage}").run
            loop = {"train": training.train} if stage in TRAININGS else {}
            with meter.watching():
                body(params, *filter(None, [item]), **loop)
        except TooLargeError as error:
            plan.source = "too large"
            plan.notes.append(f"{name}: {error}")
        except Exception as error:
            traceback.print_exc()
            plan.source = "too large" if is_out_of_memory(error.__cause__ or error) else "not measured"
            what = str(error) if isinstance(error, DarkroomError) else f"{type(error).__name__}: {error}"
            plan.notes.append(f"{name} could not be run in miniature: {what}")
    helped = (_children() - children) / max(1, getattr(getattr(params, "run", None), "ingest_processes", 1))
    work = clock() - began + helped
    plan.wall = time.perf_counter() - wall
    # On a GPU `clock` waits for all of it, and its first call sets CUDA up, as each stage with networks does.
    plan.work = plan.wall if torch.cuda.is_available() else work
    _fill(plan, meter, training.took, item or None)
    if plan.source == "measured" and (reason := _skipped(stage, item or None, getattr(params, "idle", None))):
        plan.source, plan.skipped = SKIPPED, reason
    return plan


def _fill(plan: StagePlan, meter: Meter, took: float, item: str | None) -> None:
    """Add what the meter found to the plan; `took` are the seconds that the rehearsal of a training took."""
    plan.seconds += max(0.0, plan.work + meter.spared - took)
    stage = plan.stage.partition("@")[0]
    files = {file for path in declared(stage, item, OUTPUTS) for file in (Path(path), *Path(path).rglob("*"))}
    plan.disk["outputs"] = 2 * sum(file.stat().st_size for file in files if file.is_file())
    if plan.parameters is None and meter.parameters is not None:
        plan.parameters, plan.forward = meter.parameters, float(meter.flops)
        plan.memory = {"weights": meter.weights, "activations": meter.peak}
    plan.gpu = plan.parameters is not None


def _skipped(stage: str, item: str | None, idle: str | None) -> str | None:
    """Return why a stage had nothing to do, as `write_untrained` and stages/empty.py write it; None: it had."""
    outs = [Path(path) for path in declared(stage, item, OUTPUTS)]
    scores = [json.loads(path.read_text()) for path in outs if path.suffix == ".json"]
    manifests = [json.loads((path / NAME).read_text()) for path in outs if (path / NAME).is_file()]
    empty = [each for each in manifests if "reason" in each or each.get("images") == 0 or each.get("clip") == ""]
    if any(scores) or not (scores or empty):
        return None
    reasons = [each.get("reason", "there is no CLIP" if "clip" in each else "it does not generate") for each in empty]
    return idle or next(iter(reasons), "nothing is scored")


def _children() -> float:
    """Return the seconds that processes started by this one have worked."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
