"""The table of `darkroom compare A B C…` and of a sweep: a line for each setting, with means over its seeds."""

from collections.abc import Mapping, Sequence

import pandas as pd

from darkroom.report.scores import distance_beside_real, error_of
from darkroom.tools.compare.revisions import Results
from darkroom.tools.compare.seeds import Keys, completed_params, differing_keys, read_runs
from darkroom.tools.compare.summary import shown_file
from darkroom.tools.compare.verdicts import compare, error, known

GROUPED = (
    "Settings that differ only in seeds share a row. ± is one standard error, between runs where there are several. "
    "The verdict compares the first score with that of the best row."
)
_BESIDE = (("label_accuracy", "clip_text"), ("diversity", "coverage"), ("recall",))  # the first available score of each
_RECONSTRUCTIONS = "tokenizer", ("rfd", "psnr")  # without generated images, first and second


def grouped(revisions: Sequence[str], seconds: Mapping[str, float] | None = None) -> pd.DataFrame:
    """Return a row for each setting among revisions, the best first.

    Revisions that differ in nothing but seeds are one setting. The first score decides which is best, and `compare`
    judges the difference from it. `seconds` are the cost of each revision; their mean is added.

    Columns: `revisions`; each key that differs; each score and its standard error, NAME_se; `verdict`; `seconds`.

    Raises:
        DarkroomError: a revision does not exist or has no metrics.
    """
    params = completed_params(list(dict.fromkeys(revisions)))
    groups: dict[str, list[str]] = {}  # by the first of each
    for name, own in params.items():
        alike = (one for one, group in groups.items() if _seeds_differ(own, [params[each] for each in group]))
        groups.setdefault(next(alike, name), []).append(name)
    results = {first: read_runs(",".join(names)) for first, names in groups.items()}
    file, names = _scores(list(results.values()))
    keys = sorted({key for one in groups for other in groups for key in differing_keys(params[one], params[other])})
    with_first = [each for each in results if names and names[0] in results[each].metrics.get(file, {})]
    with_first.sort(key=lambda each: results[each].metrics[file][names[0]], reverse=known(names[0]).higher_is_better)
    best, rows = next(iter(with_first), None), []
    for first in [*with_first, *(each for each in results if each not in with_first)]:
        scores = results[first].metrics.get(file, {})
        row: dict[str, object] = {"revisions": ",".join(groups[first])}
        row |= {key: params[first].get(key, "default") for key in keys}
        for name in names:
            row[name] = scores.get(name)
            row[error_of(name)] = error(results[first], file, name) if name in scores else None
        if best is not None:
            beside = compare(results[best], results[first])
            verdict = next((each.verdict for each in beside if (each.file, each.name) == (file, names[0])), "")
            row["verdict"] = "best" if first == best else verdict
        if seconds:
            row["seconds"] = round(sum(seconds.get(each, 0.0) for each in groups[first]) / len(groups[first]))
        rows.append(row)
    return pd.DataFrame(rows)


def _seeds_differ(keys: Keys, others: Sequence[Keys]) -> bool:
    """Return whether parameters differ from each of others in seeds alone; equal ones may be of other code or data."""
    return all(keys != other and not differing_keys(keys, other) for other in others)


def as_text(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a table of `grouped` with each score and its standard error as one text."""
    shown = frame.astype(object).where(frame.notna(), "")
    for name in [name for name in frame.columns if error_of(name) in frame.columns]:
        shown[name] = list(map(_cell, shown[name], shown.pop(error_of(name))))
    return shown


def _cell(value: object, se: object) -> str:
    if not isinstance(value, float):
        return ""
    return f"{value:.4g} ± {se:.2g}" if isinstance(se, float) else f"{value:.4g}"


def _scores(results: Sequence[Results]) -> tuple[str, list[str]]:
    """Return the file of metrics that is shown, and the names of its scores, the one that decides first."""
    file = next(filter(None, map(shown_file, results)), None)
    if file is None:
        return _RECONSTRUCTIONS[0], list(_RECONSTRUCTIONS[1])
    of = next(each for each in results if "fd" in each.metrics.get(file, {}))
    distance, _, _ = distance_beside_real(of.metrics[file], of.cards.get(file, {}).get("baselines", {}))
    beside = [next((name for name in names if name in of.metrics[file]), None) for names in _BESIDE]
    return file, [distance if distance in of.metrics[file] else "fd", *filter(None, beside)]
