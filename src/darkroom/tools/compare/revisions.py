"""Read scores and cards from the working tree, a commit, or a DVC experiment."""

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from darkroom.dag.records import Outdated, outdated
from darkroom.errors import DarkroomError

WORKSPACE = "workspace"


@dataclass(frozen=True)
class Results:
    """The metrics and cards of a revision, by the names of their files; a card may be missing.

    For several runs (`tools/compare/seeds.py`), `metrics` are means, and `errors` their standard errors between runs,
    by file and name. `trainings`: runs whose trainings have different seeds. `outdated`: files of the working tree
    that do not match params.yaml; those of other data are left out of `metrics`.
    """

    name: str
    metrics: dict[str, dict[str, float]]
    cards: dict[str, dict[str, Any]]
    errors: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    runs: int = 1
    trainings: int = 1
    outdated: Mapping[str, Outdated] = field(default_factory=dict)


def git(*arguments: str) -> str | None:
    """Return the output of git, or None if it fails."""
    done = subprocess.run(["git", *arguments], capture_output=True, text=True)
    return done.stdout if done.returncode == 0 else None


def experiments() -> list[tuple[str, str, str]]:
    """Return baseline, name and commit of each experiment of DVC: its ref is refs/exps/ab/cdef…/NAME of abcdef…."""
    refs = (git("for-each-ref", "--format=%(objectname) %(refname)", "refs/exps") or "").splitlines()
    parts = [(line.split()[0], line.split("/")) for line in refs]
    return [("".join(path[2:4]), path[4], commit) for commit, path in parts if len(path) == 5]


def commit_of(revision: str) -> str:
    """Return the commit of a branch, tag, hash or experiment name.

    Raises:
        DarkroomError: git and DVC know no such revision.
    """
    resolved = git("rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}")
    if resolved is None:
        named = [commit for _, name, commit in experiments() if name == revision]
        if len(named) != 1:
            raise DarkroomError(
                f"`{revision}` is not a commit, branch, tag or experiment: `git log` and `dvc exp show` list them."
            )
        resolved = named[0]
    return resolved.strip()


def read_results(revision: str) -> Results:
    """Return the results of a revision; `workspace` is the working tree.

    Raises:
        DarkroomError: the revision does not exist or has no metrics, or a file is not JSON; the message names it.
    """
    commit = None if revision == WORKSPACE else commit_of(revision)
    metrics, cards = (_read(folder, commit, revision) for folder in ("metrics", "cards"))
    if not metrics:
        raise DarkroomError(
            f"{revision} has no metrics/*.json: run `dvc repro` there, and commit dvc.lock, metrics and cards."
        )
    old = {} if commit else outdated()
    ages = {name: old[path] for name in metrics if (path := f"metrics/{name}.json") in old}
    metrics = {name: scores for name, scores in metrics.items() if name not in ages or not ages[name].data}
    if not metrics:
        raise DarkroomError(
            "all of metrics/ belongs to other data than params.yaml: run `snakemake --cores all` to update it."
        )
    return Results(revision, metrics, cards, outdated=ages)


def _read(folder: str, commit: str | None, revision: str) -> dict[str, dict[str, Any]]:
    if commit is None:
        texts = {path.stem: path.read_text() for path in sorted(Path(folder).glob("*.json"))}
    else:
        listed = (git("ls-tree", "--name-only", commit, f"{folder}/") or "").splitlines()
        texts = {Path(path).stem: git("show", f"{commit}:{path}") or "" for path in listed if path.endswith(".json")}
    values = {}
    for name, text in texts.items():
        try:
            values[name] = json.loads(text)
        except ValueError as error:
            raise DarkroomError(f"{folder}/{name}.json of {revision} is not JSON ({error}).") from error
    return values
