"""`darkroom tune`: tries the switches of a training on this machine, and says or writes those that pay."""

# No effect on any output: writes params.yaml, which the stages depend on key by key

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from darkroom.artifacts.atomic import write_bytes
from darkroom.check.check import check, read_params
from darkroom.dag.stages import FOREACH, TRAININGS
from darkroom.environment import choose_device, keep_compiled
from darkroom.errors import DarkroomError
from darkroom.params.section import PARAMS
from darkroom.params.stage import read_yaml
from darkroom.params.yaml_text import parse_yaml
from darkroom.terminal.tables import aligned, bytes_of
from darkroom.tools.cores import core_count
from darkroom.tools.plan.forks import Submit, forks
from darkroom.tools.plan.miniature import IMAGES, Miniature, count_images, ingested, scratch
from darkroom.tools.plan.numbers import time_of
from darkroom.tools.plan.plan import REHEARSE, in_miniature
from darkroom.tools.plan.stale import Dag, ask_dvc
from darkroom.tools.plan.table import UNKNOWN
from darkroom.tools.preset import laid_over
from darkroom.tools.quiet import quiet
from darkroom.tools.tune.search import RUN_KEYS, SHARE, Changes, Found, Tried, search

_LOG = Path("logs/tune.log")
_ATTEMPT = "darkroom.tools.tune.trial:attempt"
_HEADER = ("", "updates/s", "the first", "memory", "loss", "gradient", "all updates", "")


@dataclass(frozen=True)
class Tuned:
    """What was found of a training: all that was tried, and the changes that were taken, beside params.yaml."""

    stage: str
    tried: list[Tried]
    changes: Changes


def tune(names: Sequence[str] = (), write: bool = False) -> Iterator[str]:
    """Yield what was found of trainings, line after line, and at last what to set.

    Args:
        names: of stages that train; without: all that this DAG trains.
        write: whether params.yaml gets the settings that pay.

    Raises:
        DarkroomError: a name is no training, or params.yaml or dvc.yaml is not valid.
    """
    check()
    params = read_params()
    choose_device(params["run"]["device"])
    keep_compiled()
    gpu = params["run"]["device"] != "cpu" and shutil.which("nvidia-smi") is not None
    found: list[Tuned] = []
    with ExitStack() as stack:
        with quiet(_LOG):
            dag = ask_dvc()
            chosen = _chosen(names, dag)
            above = [name for name in dag.stages if any(name in dag.needs[each] for each in chosen)]
            submit = stack.enter_context(
                forks(core_count(), *(task.partition(":")[0] for task in (REHEARSE, _ATTEMPT)))
            )
            on = stack.enter_context(_miniature(dag))
            plans = in_miniature(submit, above, on, dag, params)
        for stage in chosen:
            lacking = [name for name in above if name in dag.needs[stage] and plans[name].source in UNKNOWN]
            if lacking:
                yield f"{stage}: not tried, as {lacking[0]} cannot run here; `darkroom plan {lacking[0]}` says why."
                continue
            print(f"{stage} …", flush=True)
            tuned = _tuned(submit, stage, on, gpu)
            if names or not tuned.tried[0].found.why:
                yield from _told(tuned)
                found.append(tuned)
    yield from _end(found, write)


@contextmanager
def _miniature(dag: Dag) -> Iterator[Miniature]:
    """Yield where stages run, on 2,000 images at most."""
    parts = count_images(dag.stale)
    scale = -(-sum(count for _, count in parts.values()) // IMAGES)
    ready = ingested(parts, dag.stale) if scale == 1 else set()
    with scratch(ready) as folder:
        yield Miniature(folder, parts, scale, ready)


def _chosen(names: Sequence[str], dag: Dag) -> list[str]:
    """Return the trainings that are meant, each with all its items. Raises DarkroomError naming what is none."""
    known = [name for name in dag.stages if name.partition("@")[0] in TRAININGS]
    for name in names:
        if not any(name in (each, each.partition("@")[0]) for each in known):
            raise DarkroomError(f"there is no training `{name}`; there are: {', '.join(known)}.")
    return [each for each in known if not names or each in names or each.partition("@")[0] in names]


def _tuned(submit: Submit, stage: str, on: Miniature, gpu: bool) -> Tuned:
    """Try the settings of a training, one at a time: nothing else runs meanwhile."""
    with TemporaryDirectory(prefix="darkroom-tune-") as folder:
        exact = Path(folder) / "exact.pt"

        def attempt(changes: Changes) -> Found:
            answer: Found | None = submit(_ATTEMPT, stage, on, changes, exact).result()
            return answer or Found(why="it was ended by a signal, as where memory runs out")

        tried = list(search(attempt, core_count(), gpu))
    taken = [each for each in tried if each.verdict in ("", "taken")]
    return Tuned(stage, tried, _beside(tried[0].found.now, taken[-1].changes) if taken else {})


def _beside(now: Changes, changes: Changes) -> dict[str, Any]:
    """Return those of some changes that params.yaml does not say already."""
    return {key: value for key, value in changes.items() if now[key] != value}


def _told(tuned: Tuned) -> Iterator[str]:
    """Yield a table of what was tried."""
    exact = tuned.tried[0].found
    if exact.why:
        yield f"{tuned.stage}: {exact.why}."
        return
    yield f"{tuned.stage}: {exact.updates:,} updates of {exact.batch} images"
    yield from (f"  {line}" for line in aligned([_HEADER, *map(_row, tuned.tried)]))
    noise = (
        f"from batch to batch the loss differs by {exact.loss_noise:.2%}, the gradient by {exact.gradient_noise:.0%}"
    )
    yield f"  Exact settings: {noise}. What departs by more than {SHARE:.0%} of that is refused."
    yield ""


def _row(tried: Tried) -> tuple[str, ...]:
    found = tried.found
    if found.why:
        return (tried.label, *[""] * 6, tried.verdict)
    return (
        tried.label,
        f"{1 / found.seconds:.3g}",
        time_of(found.first) if found.first >= 1 else "",
        bytes_of(found.memory),
        f"{found.loss:.2%}",
        f"{found.gradient:.2%}",
        time_of(found.whole),
        tried.verdict,
    )


def _end(found: Sequence[Tuned], write: bool) -> Iterator[str]:
    """Yield what to set, and set it where that is wanted."""
    params = read_yaml(PARAMS)
    new = {key: value for tuned in found for key, value in _keys(tuned, params).items()}
    shared = _of_all(found)
    if not new and not shared:
        yield "Nothing pays: params.yaml stays as it is."
        return
    for key, value in {**new, **shared}.items():
        yield f"{key}: {value}"
    if not write:
        yield "`--write` sets them; trainings whose settings change run again."
        return
    text = laid_over(PARAMS.read_text(encoding="utf-8"), {**new, **shared})
    check(parse_yaml(text, PARAMS))
    write_bytes(PARAMS, text.encode())
    yield "params.yaml has them now. The trainings whose settings changed run again."


def _of_all(found: Sequence[Tuned]) -> dict[str, Any]:
    """Return the keys of `run` that each training that was tried takes: they are of all."""
    changes = [{key: value for key, value in tuned.changes.items() if key in RUN_KEYS} for tuned in found]
    common = set.intersection(*(set(each.items()) for each in changes)) if changes else set()
    return {f"run.{key}": value for key, value in sorted(common)}


def _keys(tuned: Tuned, params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the changes of a training under the keys of params.yaml that decide."""
    changes = {key: value for key, value in tuned.changes.items() if key not in RUN_KEYS}
    return {f"{_place(tuned.stage, key, params)}.{key}": value for key, value in changes.items()}


def _place(name: str, key: str, params: Mapping[str, Any]) -> str:
    """Return the section of a key of a training: the most particular one that has it, or the stage's or item's own."""
    stage, _, item = name.partition("@")
    section = params.get(stage) or {}
    kind = section.get("kind", section.get("source"))
    own = [f"{FOREACH[stage]}.{item}.training"] if item else []
    places = [*own, *([f"{stage}.{kind}.training"] if kind else []), f"{stage}.training"]
    return next((place for place in places if key in _at(params, place)), places[0] if item else places[-1])


def _at(params: Mapping[str, Any], path: str) -> Mapping[str, Any]:
    """Return a section; an empty one where there is none."""
    found: Any = params
    for name in path.split("."):
        found = (found or {}).get(name)
    return found or {}
