"""The table that `darkroom compare` prints."""

import pandas as pd

from darkroom.comparing.revisions import WORKSPACE, read_results
from darkroom.comparing.verdicts import THRESHOLD, compare


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
    rows = compare(read_results(old), read_results(new))
    frame = pd.DataFrame(
        {
            "score": [f"{row.file}.{row.name}" for row in rows],
            old: [_number(row.old, row.old_se) for row in rows],
            new: [_number(row.new, row.new_se) for row in rows],
            "difference": [_number(row.difference, row.se) for row in rows],
            "verdict": [row.verdict for row in rows],
        }
    )
    text = frame.to_markdown(index=False) if markdown else frame.to_string(index=False)
    note = f"±: one standard error, of the samples alone. Below {THRESHOLD:g} of the difference's it is within noise."
    if WORKSPACE in (old, new) and stale():
        note += (
            "\nThe working tree is out of date: its scores are older than its parameters, code or data (`dvc status`)."
        )
    return f"{text}\n\n{note}"
