"""The tables that `darkroom scores` and `darkroom compare` print."""

import pandas as pd

from darkroom.tools.compare.revisions import WORKSPACE, Results, read_results
from darkroom.tools.compare.verdicts import THRESHOLD, compare, standard_error

_NOTE = "±: one standard error, of the samples alone."


def _number(value: float, se: float | None) -> str:
    return f"{value:.4g}" if se is None else f"{value:.4g} ± {se:.2g}"


def stale() -> bool:
    """Return whether DVC finds something out of date in the working tree, whose scores then are older than it."""
    from dvc.exceptions import DvcException
    from dvc.repo import Repo

    try:
        with Repo(_wait_for_lock=True) as repo:
            return bool(repo.status())
    except DvcException:  # no repository of DVC, or one that is busy: then there is nothing to say
        return False


def table(old: str, new: str, markdown: bool) -> str:
    """Return the scores of two revisions side by side, their difference, and whether it is noise.

    Raises:
        DarkroomError: an unknown revision, or one without metrics.
    """
    found = [read_results(revision) for revision in (old, new)]
    rows = compare(*found)
    frame = pd.DataFrame(
        {
            "score": [f"{row.file}.{row.name}" for row in rows],
            old: [_number(row.old, row.old_se) for row in rows],
            new: [_number(row.new, row.new_se) for row in rows],
            "difference": [_number(row.difference, row.se) for row in rows],
            "verdict": [row.verdict for row in rows],
        }
    )
    text = _text(frame, markdown)
    note = f"{_NOTE} Below {THRESHOLD:g} of the difference's it is within noise."
    return f"{text}\n\n{note}{_alone(*found)}{_age(old, new)}"


def scores(revision: str, markdown: bool) -> str:
    """Return all scores of a revision, a row each, a column for each file of metrics that holds any.

    Raises:
        DarkroomError: an unknown revision, or one without metrics.
    """
    files = {file: found for file, found in read_results(revision).metrics.items() if found}
    names = dict.fromkeys(name for found in files.values() for name in sorted(found) if not name.endswith("_se"))
    columns = {
        file: [_number(found[name], standard_error(name, found)) if name in found else "" for name in names]
        for file, found in files.items()
    }
    text = _text(pd.DataFrame({"score": list(names), **columns}), markdown)
    return f"{text}\n\n{_NOTE}{_age(revision)}"


def _text(frame: pd.DataFrame, markdown: bool) -> str:
    return frame.to_markdown(index=False) if markdown else frame.to_string(index=False)


def _alone(old: Results, new: Results) -> str:
    """Return a line for each file of metrics that holds scores in one of two revisions alone."""
    files = {each.name: [name for name, scores in each.metrics.items() if scores] for each in (old, new)}
    lines = [
        f"\n{one.name} alone has scores of: {', '.join(names)}."
        for one, other in ((old, new), (new, old))
        if (names := sorted(set(files[one.name]) - set(files[other.name])))
    ]
    return "".join(lines)


def _age(*revisions: str) -> str:
    """Return what is to be said of scores of a working tree that is out of date."""
    if WORKSPACE not in revisions or not stale():
        return ""
    return "\nThe working tree is out of date: its scores are older than its parameters, code or data (`dvc status`)."
