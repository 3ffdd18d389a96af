"""Finds outputs that DVC could not move into its cache, for example because the disk was full.

DVC 3 logs such an output in one line, records it in dvc.lock and exits with code 0. Its next run finds the output "not
in cache", removes it and makes it again; `dvc commit STAGE` keeps it instead.
"""

import configparser
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from darkroom.dag.lock_file import recorded
from darkroom.params.stage import DVC, OUTPUTS, read_yaml, related, stage_entry

if TYPE_CHECKING:  # the import takes half a second, and is rarely needed
    from dvc.stage import Stage

_OBJECTS = Path("files/md5")


def uncached(dvc: Mapping[str, Any]) -> set[str]:
    """Return the outputs of dvc.yaml that are stored in git and not in the cache (`cache: false`)."""
    listed = [item for stage in dvc["stages"] for kind in OUTPUTS for item in stage_entry(dvc, stage).get(kind, [])]
    named = [next(iter(item.items())) for item in listed if isinstance(item, Mapping)]
    return {path for path, settings in named if settings.get("cache") is False}


def lost(outs: Mapping[str, str]) -> list[str]:
    """Return the outputs that no DVC cache holds.

    Args:
        outs: the hash of each output from dvc.lock. The cache entry of a folder is written after all of its files.
    """
    for folder in folders():
        outs = {path: md5 for path, md5 in outs.items() if not (folder / md5[:2] / md5[2:]).is_file()}
        if not outs:
            break
    return sorted(outs)


def as_recorded(stage: "Stage") -> bool:
    """Return whether command, dependencies and outputs of a stage equal those in dvc.lock: then a commit is safe."""
    return not stage.changed_stage() and not any(path.workspace_status() for path in (*stage.deps, *stage.outs))


def lost_of(names: Sequence[str] | None = None, deps: Sequence[str] | None = None) -> dict[str, list[str]]:
    """Return the outputs that exist as recorded in dvc.lock but are in no cache, by stage.

    Stages that were removed from dvc.yaml, or that are out of date for another reason, are ignored.

    Args:
        names: the stages to check; None: all.
        deps: check the outputs that overlap with these paths; None: all.
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
    """Return the entries of dvc.lock that are current stages and up to date."""
    from dvc.exceptions import DvcException
    from dvc.repo import Repo

    with suppress(DvcException), Repo() as repo:
        stages = {stage.addressing: stage for stage in repo.index.stages}
        return [name for name in names if name in stages and as_recorded(stages[name])]
    return []


def message(found: Mapping[str, Sequence[str]]) -> str:
    """Return a message on outputs that are in no cache, by their stages: what is wrong and what to do."""
    paths = ", ".join(path for outs in found.values() for path in outs)
    return (
        f"DVC could not move {paths} into its cache, as where a disk is full, and says so only in its log: free some "
        f"space, then `dvc commit {' '.join(found)}` and the same command. Without it, DVC makes them again."
    )


def folders() -> Iterator[Path]:
    """Yield the folders of DVC's objects: first from the clone's settings, then from DVC, which takes half a second."""
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
