"""`darkroom tune`: tries the switches of a training on this machine, and says or writes those that pay."""

# No effect on any output: writes params.yaml, which the stages depend on key by key

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from darkroom.artifacts.atomic import write_bytes
from darkroom.check.check import check, read_params
from darkroom.dag.stages import TRAININGS
from darkroom.environment import choose_device, set_threads
from darkroom.errors import DarkroomError
from darkroom.params.section import PARAMS
from darkroom.params.stage import read_yaml
from darkroom.params.yaml_text import parse_yaml
from darkroom.terminal.tables import aligned, bytes_of
from darkroom.tools.cores import core_count
from darkroom.tools.plan.forks import Lost, Submit, forks
from darkroom.tools.plan.miniature import IMAGES, Miniature, count_images, ingested, scratch
from darkroom.tools.plan.numbers import time_of
from darkroom.tools.plan.plan import REHEARSE, choose, in_miniature
from darkroom.tools.plan.stale import Dag, ask_dvc
from darkroom.tools.plan.table import UNKNOWN
from darkroom.tools.preset import laid_over, shown
from darkroom.tools.quiet import quiet
from darkroom.tools.tune.places import is_shared, key_of
from darkroom.tools.tune.search import NOTHING, TOLERANCE, Changes, Found, Tried, search
from darkroom.training.compiled import keep_compiled

_LOG = Path("logs/tune.log")
_ATTEMPT = "darkroom.tools.tune.trial:attempt"
_BUSY = 0.5  # other processes that want a core, on average of a minute, from which it is said
_HEADER = ("", "updates/s", "first update", "memory", "loss", "gradient", "all updates", "")


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
    set_threads(core_count())  # of NumPy; torch's are set for each stage
    choose_device(params["run"]["device"])
    keep_compiled()
    if os.getloadavg()[0] > _BUSY:
        yield "Others use this machine now: times are of what they leave."
    found: list[Tuned] = []
    idle: set[str] = set()
    with ExitStack() as stack:
        with quiet(_LOG):
            dag = ask_dvc()
            known = [name for name in dag.stages if name.partition("@")[0] in TRAININGS]
            chosen = choose(names, known, set(), everything=True)
            above = [name for name in dag.stages if any(name in dag.needs[each] for each in chosen)]
            modules = [task.partition(":")[0] for task in (REHEARSE, _ATTEMPT)]
            submit = stack.enter_context(forks(core_count(), *modules))
            on = stack.enter_context(_miniature(dag))
            plans = in_miniature(submit, above, on, dag, params)
        for stage in chosen:
            lacking = [name for name in above if name in dag.needs[stage] and plans[name].source in UNKNOWN]
            if lacking:
                yield f"{stage}: not tried, as {lacking[0]} cannot run here; `darkroom plan {lacking[0]}` says why."
                continue
            yield f"{stage} …"
            tuned = _tuned(submit, stage, on)
            why = tuned.tried[0].found.why
            if not why:
                yield from _table(tuned)
                found.append(tuned)
                continue
            if why == NOTHING:
                idle.add(stage)
            if names or stage not in idle:
                yield f"{stage}: {why}."
    yield from _end(found, [name for name in known if name not in idle], write)


@contextmanager
def _miniature(dag: Dag) -> Iterator[Miniature]:
    """Yield where stages run, on 2,000 images at most."""
    parts = count_images(dag.stale)
    scale = -(-sum(count for _, count in parts.values()) // IMAGES)
    ready = ingested(parts, dag.stale) if scale == 1 else set()
    with scratch(ready) as folder:
        yield Miniature(folder, parts, scale, ready)


def _tuned(submit: Submit, stage: str, on: Miniature) -> Tuned:
    """Try the settings of a training, one at a time: nothing else runs meanwhile."""
    with TemporaryDirectory(prefix="darkroom-tune-") as folder:
        exact = Path(folder) / "exact.pt"

        def attempt(changes: Changes | None) -> Found:
            answer: Found | Lost = submit(_ATTEMPT, stage, on, changes, exact).result()
            return Found(why=f"it {answer.why}") if isinstance(answer, Lost) else answer

        tried = list(search(attempt, core_count()))
    now = tried[0].found.now
    taken = [each for each in tried if each.verdict in ("", "taken")]
    changes = taken[-1].changes if taken else {}
    return Tuned(stage, tried, {key: value for key, value in changes.items() if now[key] != value})


def _table(tuned: Tuned) -> Iterator[str]:
    """Yield a table of what was tried."""
    exact = tuned.tried[0].found
    yield f"{tuned.stage}: {exact.updates:,} updates of {exact.batch} images"
    yield from (f"  {line}" for line in aligned([_HEADER, *map(_row, tuned.tried)]))
    yield (
        f"  Loss and gradient: differences from exact settings. From batch to batch the gradient differs by "
        f"{exact.noise:.0%}; what departs by more than {TOLERANCE:.0%} of what batches do is refused."
    )


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


def _end(found: Sequence[Tuned], known: Sequence[str], write: bool) -> Iterator[str]:
    """Yield what to set, and set it where that is wanted.

    Args:
        found: trainings that were tried.
        known: the names of all trainings that there are.
        write: whether params.yaml gets the settings that pay.
    """
    if not found:
        yield "No training was tried."
        return
    new: dict[str, Any] = {}
    wanted, alone = _wanted(found, known)
    for stage, key, value in alone:
        yield f"{key}: {shown(value)} would pay for {stage}. Others share it, and were not all tried or do not take it."
    for key, value in wanted.items():
        try:
            check(parse_yaml(_text({**new, key: value}), PARAMS))
        except DarkroomError as error:
            yield f"{key}: {shown(value)} would pay, and is not allowed here: {error}"
        else:
            new[key] = value
    if not new:
        yield "Nothing pays: params.yaml stays as it is."
        return
    yield from (f"{key}: {shown(value)}" for key, value in new.items())
    if not write:
        yield "`--write` sets them; trainings whose settings change run again."
        return
    write_bytes(PARAMS, _text(new).encode())
    yield "params.yaml has them now. The trainings whose settings changed run again."


def _text(new: Mapping[str, Any]) -> str:
    return laid_over(PARAMS.read_text(encoding="utf-8"), new)


def _wanted(found: Sequence[Tuned], known: Sequence[str]) -> tuple[dict[str, Any], list[tuple[str, str, Any]]]:
    """Return the values that pay, by the keys of params.yaml that decide.

    One that several trainings share is among them where each of these was tried and took it: of `run` all trainings,
    of a stage with several U-Nets all of these. The others are returned apart, with the training that took them.
    """
    params = read_yaml(PARAMS)
    wanted: dict[str, Any] = {}
    alone: list[tuple[str, str, Any]] = []
    for tuned in found:
        for key, value in tuned.changes.items():
            path, stage = key_of(tuned.stage, key, params), tuned.stage.partition("@")[0]
            sharing = {each for each in known if path.startswith("run.") or each.partition("@")[0] == stage}
            took = {each.stage for each in found if key in each.changes and each.changes[key] == value}
            if not is_shared(tuned.stage, key) or sharing <= took:
                wanted[path] = value
            else:
                alone.append((tuned.stage, path, value))
    return wanted, alone
