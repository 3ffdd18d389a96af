"""`darkroom plan`: parameters, operations, memory, disk and time of the stages that are out of date.

Everything is measured on this machine, on noise, with the networks, losses and optimizers that the stages use. Nothing
is written, and no artifact has to be there.
"""

import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from darkroom.check import check
from darkroom.errors import DarkroomError
from darkroom.params import PARAMS, read_yaml, threads
from darkroom.planning.stage_plan import StagePlan
from darkroom.planning.table import as_json, as_text
from darkroom.runner import LOGS, choose_device, set_threads
from darkroom.stages import STAGES

_GUESS = 2.0  # seconds of a stage that runs no network and has not run here
_BUSY = 0.2  # share of the cores that other programs may take without a word
_LONGEST_START = 15.0  # seconds; above it this process was not started for the plan


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


def last_times(path: Path) -> dict[str, float]:
    """Return the seconds that each stage's body took the last time that it ended here, from logs/runs.jsonl."""
    if not path.is_file():
        return {}
    lines: list[dict[str, Any]] = []
    for text in path.read_text().splitlines():
        try:
            lines.append(json.loads(text))
        except ValueError:
            continue  # a line that was cut off by a kill
    return {line["stage"]: line["seconds"] for line in lines if line.get("event") == "end" and "seconds" in line}


def _plan_stage(name: str, facts: Any, last: dict[str, float]) -> StagePlan:
    from darkroom.planning import clips, decoders, decodings, passes, priors, readers, trainings

    stage, _, item = name.partition("@")
    whole = {
        "train_teacher": trainings.plan_teacher,
        "train_tokenizer": trainings.plan_tokenizer,
        "train_extractor": trainings.plan_extractor,
        "train_dit": passes.plan_dit,
        "score_tokenizer": passes.plan_score_tokenizer,
        "sample_tokenizer": passes.plan_sample_tokenizer,
        "reference_stats": passes.plan_reference,
        "score_tokenizer_samples": passes.plan_score_tokenizer_samples,
        "sample_dit": passes.plan_sample,
        "score_dit": passes.plan_score,
        "train_clip": clips.plan_clip,
        "sample_decoder": decodings.plan_sample_decoder,
        "train_scene_reader": readers.plan_reader,
        "score_decoder": decodings.plan_score_decoder,
        "train_prior": priors.plan_prior,
        "sample_text": decodings.plan_sample_text,
        "score_text": decodings.plan_score_text,
    }
    each = {
        "ingest": passes.plan_ingest,
        "encode_latents": passes.plan_encode,
        "embed_clip": clips.plan_embed,
        "train_decoder": decoders.plan_unet,
    }
    if stage in whole:
        return whole[stage](facts)
    if stage in each:
        return each[stage](facts, item)
    source = "earlier run" if name in last else "guess"
    return StagePlan(name, seconds=last.get(name, _GUESS), source=source)


def _start(busy: bool) -> float:
    """Return the seconds from the start of this process to all libraries in it: what each stage's start takes."""
    import psutil

    import darkroom.planning.passes

    assert darkroom.planning.passes
    process = psutil.Process()
    taken = sum(process.cpu_times()[:2]) if busy else time.time() - process.create_time()
    return min(_LONGEST_START, taken)


def _busy() -> float:
    """Return the share of this machine's cores that other programs use now."""
    import psutil

    return psutil.cpu_percent(interval=0.5) / 100


def _assumptions(start: float, keep: int, busy: float) -> list[str]:
    """Return what every plan assumes, in sentences without a full stop."""
    return [
        f"stages run one after another, and the process of each starts in {start:.1f} s; what the engine takes is "
        "not counted",
        "memory is of the tensors of one process, without libraries",
        f"disk counts outputs twice, in the checkout and in DVC's cache, and a training's state {keep + 1} times: "
        "`run.keep`, and the one being written",
        "FLOPs count a multiplication and an addition as two; forward + backward where there is a backward pass",
        "several processes share a batch without loss, and checkpoints are written in the background",
        *(
            [f"other programs take {busy:.0%} of the cores now: times on the CPU are of the work itself, as in quiet"]
            if busy > _BUSY
            else []
        ),
    ]


def plan(names: Sequence[str] = (), everything: bool = False, in_json: bool = False) -> str:
    """Return the plan of the stages that are out of date, of those named, or of all.

    Raises:
        DarkroomError: params.yaml or dvc.yaml is not valid, DVC cannot be asked, or a name is no stage.
    """
    check()
    params = read_yaml(PARAMS)
    set_threads(max(threads(params.get(stage, {})) for stage in STAGES))  # of NumPy; torch's are set for each stage
    choose_device(params["run"]["device"])
    share = _busy()
    if busy := share > _BUSY:  # before torch is loaded: threads that wait must not count as work
        os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    start = _start(busy)
    from darkroom.planning.facts import gather
    from darkroom.planning.stale import ask_dvc

    known, stale = ask_dvc()
    chosen = choose(names, known, stale, everything)
    if not chosen and not in_json:
        return "every stage is up to date: nothing would run. `darkroom plan --all` plans all stages anyway."
    facts = gather(stale, time.thread_time if busy else time.perf_counter)
    last = last_times(LOGS / "runs.jsonl")
    plans = [_plan_stage(name, facts, last) for name in chosen]
    for each in plans:
        each.stale = each.stage in stale
    assumed = [*facts.assumed, *_assumptions(start, params["run"]["keep"], share)]
    return (as_json if in_json else as_text)(plans, start, last, assumed)
