"""Outputs that DVC could not move into its cache, as where a disk is full.

DVC 3 logs such an output in a line, records it in dvc.lock all the same and ends with exit code 0. Its next run finds
it "not in cache", removes it and makes it again; `dvc commit STAGE` keeps it instead.
"""

# No effect on any output: looks whether DVC's cache has what it should

import configparser
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from darkroom.dag.lock_file import recorded
from darkroom.params.stage import DVC, OUTPUTS, read_yaml, related, stage_entry

if TYPE_CHECKING:  # half a second, and as a rule nothing is lost
    from dvc.stage import Stage

_OBJECTS = Path("files/md5")


def uncached(dvc: Mapping[str, Any]) -> set[str]:
    """Return the outputs of dvc.yaml that git holds, and no cache (`cache: false`)."""
    listed = [item for stage in dvc["stages"] for kind in OUTPUTS for item in stage_entry(dvc, stage).get(kind, [])]
    named = [next(iter(item.items())) for item in listed if isinstance(item, Mapping)]
    return {path for path, settings in named if settings.get("cache") is False}


def lost(outs: Mapping[str, str]) -> list[str]:
    """Return those of some outputs that lie in no cache of DVC's.

    Args:
        outs: the hash of each, as dvc.lock has it. A folder's is written last, after all of its files.
    """
    for folder in _folders():
        outs = {path: md5 for path, md5 in outs.items() if not (folder / md5[:2] / md5[2:]).is_file()}
        if not outs:
            break
    return sorted(outs)


def as_recorded(stage: "Stage") -> bool:
    """Return whether command, dependencies and outputs of a stage are what dvc.lock has, so that a commit adds none."""
    return not stage.changed_stage() and not any(path.workspace_status() for path in (*stage.deps, *stage.outs))


def lost_of(names: Sequence[str] | None = None, deps: Sequence[str] | None = None) -> dict[str, list[str]]:
    """Return the outputs that are here as dvc.lock has them and in no cache, by the stage that made them.

    A stage that dvc.yaml does not have any more, or that is out of date for another reason, has lost nothing.

    Args:
        names: look at these stages; None: at all.
        deps: look at what these paths are, hold, or lie in; None: at all.
    """
    plain, found = uncached(read_yaml(DVC)), {}
    for name, entry in recorded().items():
        outs = {out["path"]: out["md5"] for out in entry.get("outs", []) if isinstance(out.get("md5"), str)}
        asked = {
            path: md5
            for path, md5 in outs.items()
            if path not in plain and (deps is None or any(related(path, dep) for dep in deps)) and Path(path).exists()
        }
        if (names is None or name in names) and (missing := lost(asked)):
            found[name] = missing
    return {name: found[name] for name in _as_recorded(found)} if found else {}


def _as_recorded(names: Collection[str]) -> list[str]:
    """Return those of some entries of dvc.lock that are stages now, and as they are recorded."""
    from dvc.exceptions import DvcException
    from dvc.repo import Repo

    with suppress(DvcException), Repo() as repo:
        stages = {stage.addressing: stage for stage in repo.index.stages}
        return [name for name in names if name in stages and as_recorded(stages[name])]
    return []


def sentence(found: Mapping[str, Sequence[str]]) -> str:
    """Return a sentence on outputs that are in no cache, by their stages: what is wrong and what to do."""
    paths = ", ".join(path for outs in found.values() for path in outs)
    return (
        f"DVC could not move {paths} into its cache, as where a disk is full, and says so only in its log: free some "
        f"space, then `dvc commit {' '.join(found)}` and the same command. Without it, DVC makes them again."
    )


def _folders() -> Iterator[Path]:
    """Yield where DVC's objects may lie: first as the clone's settings say, then, half a second later, as DVC does."""
    for name in ("config.local", "config"):
        settings = configparser.ConfigParser(strict=False, interpolation=None, allow_no_value=True)
        with suppress(OSError, configparser.Error, KeyError, TypeError):
            settings.read_string(Path(".dvc", name).read_text())
            yield Path(".dvc", settings["cache"]["dir"]) / _OBJECTS
    yield Path(".dvc/cache") / _OBJECTS
    from dvc.exceptions import DvcException
    from dvc.repo import Repo

    with suppress(DvcException), Repo() as repo:
        yield Path(str(repo.cache.local.path))
