"""Scores and cards as they stand in the working tree, in a commit, or in an experiment of DVC."""

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from darkroom.errors import DarkroomError

WORKSPACE = "workspace"
_RENAMED = {"dit": "generator"}  # as older commits call their files


@dataclass(frozen=True)
class Results:
    """The metrics and cards of a revision, by the names of their files; a card may be missing."""

    name: str
    metrics: dict[str, dict[str, float]]
    cards: dict[str, dict[str, Any]]


def _git(*arguments: str) -> str | None:
    """Return what git prints, or None where it fails."""
    done = subprocess.run(["git", *arguments], capture_output=True, text=True)
    return done.stdout if done.returncode == 0 else None


def commit_of(revision: str) -> str:
    """Return the commit that a branch, tag, hash or name of an experiment stands for.

    Raises:
        DarkroomError: git and DVC know no such revision.
    """
    found = _git("rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}")
    if found is None:
        # DVC keeps an experiment called NAME under refs/exps/../../NAME.
        refs = (_git("for-each-ref", "--format=%(objectname) %(refname)", "refs/exps") or "").splitlines()
        named = [line.split()[0] for line in refs if line.rsplit("/", 1)[-1] == revision]
        if len(named) != 1:
            raise DarkroomError(
                f"`{revision}` is no commit, branch, tag or experiment: `git log` and `dvc exp show` list them."
            )
        found = named[0]
    return found.strip()


def _texts(folder: str, commit: str | None) -> dict[str, str]:
    """Return the texts of FOLDER/*.json by name without suffix."""
    if commit is None:
        return {path.stem: path.read_text() for path in sorted(Path(folder).glob("*.json"))}
    listed = (_git("ls-tree", "--name-only", commit, f"{folder}/") or "").splitlines()
    texts = {Path(path).stem: _git("show", f"{commit}:{path}") or "" for path in listed if path.endswith(".json")}
    return {_RENAMED.get(name, name): text for name, text in texts.items()}


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
    return Results(revision, metrics, cards)


def _parsed(folder: str, texts: dict[str, str], revision: str) -> dict[str, dict[str, Any]]:
    found = {}
    for name, text in texts.items():
        try:
            found[name] = json.loads(text)
        except ValueError as error:
            raise DarkroomError(f"{folder}/{name}.json of {revision} is not JSON ({error}).") from error
    return found
