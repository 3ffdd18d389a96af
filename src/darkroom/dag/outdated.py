"""Which outputs are of other data or parameters than params.yaml, by dvc.lock alone: at once, and during a run."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from darkroom.dag.fingerprint.stages import STAGE as CODE
from darkroom.dag.lock_file import recorded
from darkroom.errors import DarkroomError
from darkroom.params.section import PARAMS
from darkroom.params.stage import DVC, address, items, lookup, read_yaml


class Outdated(NamedTuple):
    """The stage that replaces an output, and whether that is of other data (`parts`, sources, `ingest`)."""

    stage: str
    data: bool

    def __str__(self) -> str:
        what = "other data" if self.data else "other parameters (stale)"
        return f"belongs to {what} than {PARAMS} names; {self.stage} replaces it when it ends"


def outdated() -> dict[str, Outdated]:
    """Return the outputs of dvc.lock that are not of params.yaml, by path.

    Raises:
        DarkroomError: params.yaml or dvc.yaml cannot be read.
    """
    if not (lock := recorded()):
        return {}
    params, dvc = read_yaml(PARAMS), read_yaml(DVC)
    names = [address(stage, item) for stage in dvc["stages"] if stage != CODE for item in items(params, dvc, stage)]
    made = {out["path"]: (name, out) for name in names for out in lock.get(name, {}).get("outs", [])}

    @cache
    def is_now(name: str) -> tuple[bool, bool]:
        """Return whether the outputs of a stage are of the data of now, and also of its parameters and inputs."""
        before: Mapping[str, Any] = lock[name].get("params", {}).get(str(PARAMS), {})
        differing = [key for key, value in before.items() if _value(params, key) != value]
        data, rest = dict[str, bool](), [not differing]
        for dep in lock[name].get("deps", []):
            if makers := [made[path] for path in made if Path(path).is_relative_to(dep["path"])]:
                same, states = _is_made_of(dep, [out for _, out in makers]), [is_now(maker) for maker, _ in makers]
                exact = name == "catalog" or dep["path"] in made  # by hash
                data[dep["path"]] = exact and same and all(state[0] for state in states)
                rest.append(same and all(state[1] for state in states))
        # The catalog names the data of the stages that read it; an input that nothing was trained for names none.
        of_data = {"ingest": not differing, "catalog": "parts" not in differing and all(data.values())}
        return of_data.get(name.partition("@")[0], data.get("data/catalog", all(data.values()))), all(rest)

    states = {path: (name, *is_now(name)) for path, (name, _) in made.items()}
    return {path: Outdated(name, not data) for path, (name, data, rest) in states.items() if not rest}


def _value(params: Mapping[str, Any], key: str) -> Any:
    with suppress(DarkroomError):
        return lookup(params, key)
    return None  # as DVC records a key that does not stand there


def _is_made_of(dep: Mapping[str, Any], outs: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether recorded outputs are a recorded input: by hash; a folder may hold more, of removed parts."""
    if [out["path"] for out in outs] == [dep["path"]]:
        return bool(outs[0].get("md5") == dep.get("md5"))
    return all(sum(out.get(key, 1) for out in outs) <= dep.get(key, 1) for key in ("size", "nfiles"))
