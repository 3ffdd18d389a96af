"""Scores and cards as they stand in the working tree, in a commit, or in an experiment of DVC."""

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from darkroom.errors import DarkroomError

WORKSPACE = "workspace"
METRICS = Path("metrics")


@dataclass(frozen=True)
class Results:
    """What a revision holds: metrics and cards by the name of their file, `dit` or `tokenizer`; a card may be missing."""

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


def _metrics(commit: str | None) -> dict[str, str]:
    """Return the texts of metrics/*.json by name without suffix."""
    if commit is None:
        return {path.stem: path.read_text() for path in sorted(METRICS.glob("*.json"))}
    listed = (_git("ls-tree", "--name-only", commit, f"{METRICS}/") or "").splitlines()
    return {Path(path).stem: _git("show", f"{commit}:{path}") or "" for path in listed if path.endswith(".json")}


def _card(name: str, commit: str | None) -> str | None:
    """Return the card of a metrics file: DVC keeps cards, so a commit's card lies in its cache or remote."""
    path = Path("cards") / f"{name}.json"
    if commit is None:
        return path.read_text() if path.is_file() else None
    committed = _git("show", f"{commit}:{path}")
    if committed is not None:
        return committed
    from dvc.api import read
    from dvc.exceptions import DvcException
    from dvc.scm import SCMError

    try:
        return read(str(path), rev=commit)
    except (DvcException, SCMError, OSError):
        return None


def read_results(revision: str) -> Results:
    """Return the results of a revision; `workspace` is the working tree.

    Raises:
        DarkroomError: no such revision, no metrics in it, or a file that is not JSON; names it.
    """
    commit = None if revision == WORKSPACE else commit_of(revision)
    texts = _metrics(commit)
    if not texts:
        raise DarkroomError(
            f"{revision} holds no metrics/*.json: run `dvc repro` there, and commit dvc.lock and metrics."
        )
    cards = {name: text for name in texts if (text := _card(name, commit)) is not None}
    return Results(revision, _parsed("metrics", texts, revision), _parsed("cards", cards, revision))


def _parsed(folder: str, texts: dict[str, str], revision: str) -> dict[str, dict[str, Any]]:
    found = {}
    for name, text in texts.items():
        try:
            found[name] = json.loads(text)
        except ValueError as error:
            raise DarkroomError(f"{folder}/{name}.json of {revision} is not JSON ({error}).") from error
    return found
