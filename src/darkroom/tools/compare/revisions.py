"""Scores and cards as they stand in the working tree, in a commit, or in an experiment of DVC."""

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

    Of several runs (`tools/compare/seeds.py`) `metrics` are means, and `errors` their standard errors, seen between the
    runs, by file and name. `trainings`: runs whose trainings have different seeds. `outdated`:
    files of the working tree that are not of params.yaml; those of other data are left out of `metrics`.
    """

    name: str
    metrics: dict[str, dict[str, float]]
    cards: dict[str, dict[str, Any]]
    errors: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    runs: int = 1
    trainings: int = 1
    outdated: Mapping[str, Outdated] = field(default_factory=dict)


def git(*arguments: str) -> str | None:
    """Return what git prints, or None where it fails."""
    done = subprocess.run(["git", *arguments], capture_output=True, text=True)
    return done.stdout if done.returncode == 0 else None


def experiments() -> list[tuple[str, str, str]]:
    """Return baseline, name and commit of each experiment of DVC: its ref is refs/exps/ab/cdef…/NAME of abcdef…."""
    refs = (git("for-each-ref", "--format=%(objectname) %(refname)", "refs/exps") or "").splitlines()
    parts = [(line.split()[0], line.split("/")) for line in refs]
    return [("".join(path[2:4]), path[4], commit) for commit, path in parts if len(path) == 5]


def commit_of(revision: str) -> str:
    """Return the commit that a branch, tag, hash or name of an experiment stands for.

    Raises:
        DarkroomError: git and DVC know no such revision.
    """
    found = git("rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}")
    if found is None:
        named = [commit for _, name, commit in experiments() if name == revision]
        if len(named) != 1:
            raise DarkroomError(
                f"`{revision}` is no commit, branch, tag or experiment: `git log` and `dvc exp show` list them."
            )
        found = named[0]
    return found.strip()


def _texts(folder: str, commit: str | None) -> dict[str, str]:
    if commit is None:
        return {path.stem: path.read_text() for path in sorted(Path(folder).glob("*.json"))}
    listed = (git("ls-tree", "--name-only", commit, f"{folder}/") or "").splitlines()
    return {Path(path).stem: git("show", f"{commit}:{path}") or "" for path in listed if path.endswith(".json")}


def read_results(revision: str) -> Results:
    """Return the results of a revision; `workspace` is the working tree.

    Raises:
        DarkroomError: no such revision, no metrics in it, or a file that is not JSON; names it.
    """
    commit = None if revision == WORKSPACE else commit_of(revision)
    metrics, cards = (_parsed(folder, _texts(folder, commit), revision) for folder in ("metrics", "cards"))
    if not metrics:
        raise DarkroomError(
            f"{revision} holds no metrics/*.json: run `dvc repro` there, and commit dvc.lock, metrics and cards."
        )
    old = {} if commit else outdated()
    ages = {name: old[path] for name in metrics if (path := f"metrics/{name}.json") in old}
    metrics = {name: scores for name, scores in metrics.items() if name not in ages or not ages[name].data}
    if not metrics:
        raise DarkroomError(
            "all of metrics/ is of other data than params.yaml names: `snakemake --cores all` renews it."
        )
    return Results(revision, metrics, cards, outdated=ages)


def _parsed(folder: str, texts: dict[str, str], revision: str) -> dict[str, dict[str, Any]]:
    found = {}
    for name, text in texts.items():
        try:
            found[name] = json.loads(text)
        except ValueError as error:
            raise DarkroomError(f"{folder}/{name}.json of {revision} is not JSON ({error}).") from error
    return found
