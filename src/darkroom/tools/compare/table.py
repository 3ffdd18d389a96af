"""The tables that `darkroom scores` and `darkroom compare` print."""

import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import pandas as pd
from typer import Argument, Option

from darkroom.errors import DarkroomError
from darkroom.metrics.sample_scores import DISTANCES, SPACES
from darkroom.report.numbers import fixed, percent
from darkroom.report.scores import too_few
from darkroom.tools.compare.revisions import WORKSPACE, Results, read_results
from darkroom.tools.compare.seeds import read_runs
from darkroom.tools.compare.verdicts import EQUAL, THRESHOLD, Row, compare, standard_error

_NOTE = "±: one standard error, of the samples alone."
_NOTES = {
    False: f"{_NOTE} Below {THRESHOLD:g} of the difference's it is within noise.",
    True: "±: one standard error, of several runs what shows between them. Below Student's t of the difference's, 95%, "
    "it is within noise.",
}
_WHOLE = "fd_debiased"  # the score of likeness and variety together
_NAMED = 4  # of what differs between two protocols
_DISTANCES = {score.name for score in DISTANCES}
_FALL = THRESHOLD * math.sqrt(2)  # of C_T, each of whose values has a standard deviation of 1
_NEAR = -3.0  # C_T below which images lie nearer to training images than held-out ones do
_ENOUGH = 3  # training seeds of which a verdict is one of the method


def _number(value: float, se: float | None, few: str = "") -> str:
    return f"{value:.4g} {few}".rstrip() if se is None else f"{value:.4g} ± {se:.2g}"


_RUNS = "a commit, branch, tag or experiment, or several that differ in seeds alone: A,B,C"
_Markdown = Annotated[bool, Option("--md", help="print Markdown")]


def table(
    old: Annotated[str, Argument(help=_RUNS)] = "HEAD",
    new: Annotated[str, Argument(help=f"{_RUNS}; workspace: the working tree")] = WORKSPACE,
    markdown: _Markdown = False,
    seeds: Annotated[bool, Option("--seeds", help="include the experiments that differ in seeds alone")] = False,
    everything: Annotated[bool, Option("--all", help="also scores that are equal in both, or do not compare")] = False,
) -> str:
    """Return the scores of two revisions side by side, their difference, and whether it is noise.

    Raises:
        DarkroomError: an unknown revision, or one without metrics; several that differ in more than seeds.
    """
    found = [read_runs(revisions, seeds) for revisions in (old, new)]
    every = compare(*found)
    rows = [row for row in every if everything or not (row.differing or row.verdict == EQUAL)]
    frame = pd.DataFrame(
        {
            "score": [f"{row.file}.{row.name}" for row in rows],
            found[0].name: [_number(row.old, row.old_se) for row in rows],
            found[1].name: [_number(row.new, row.new_se) for row in rows],
            "difference": [_number(row.difference, row.se) for row in rows],
            "verdict": [row.verdict for row in rows],
        }
    )
    text = f"{_text(frame, markdown)}\n\n{_NOTES[max(each.runs for each in found) > 1]}\n" if rows else ""
    equal = sum(row.verdict == EQUAL for row in every)
    same = f"{equal} scores are equal in both: `--all` shows them." if equal and not everything else ""
    apart = "" if everything else _apart(every, new == WORKSPACE)
    trained = _trained(*found) if rows else ""
    note = f"{same}{apart}{conflicts(rows)}{more_copies(found[0], found[1], rows)}{trained}{_alone(*found)}"
    note += "".join(map(_outdated, found))
    return f"{text}{note.strip()}{_age(*old.split(','), *new.split(','))}"


def scores(
    revision: Annotated[str, Argument(help="a commit, branch, tag or experiment")] = WORKSPACE,
    markdown: _Markdown = False,
) -> str:
    """Return all scores of a revision, a row each, a column for each file of metrics that holds any, and their notes.

    Raises:
        DarkroomError: an unknown revision, or one without metrics.
    """
    results = read_results(revision)
    files = {file: found for file, found in results.metrics.items() if found}
    names = dict.fromkeys(name for found in files.values() for name in sorted(found) if not name.endswith("_se"))
    columns = {
        file: [_number(of[name], standard_error(name, of), too_few(name, of)) if name in of else "" for name in names]
        for file, of in files.items()
    }
    stale = {file: f"{file} (stale)" for file in results.outdated}
    frame = pd.DataFrame({"score": list(names), **columns}).rename(columns=stale)
    text = _text(frame, markdown) if names else "No stage has scored the data of params.yaml yet."
    notes = [f"\n{file}: {note}." for file in files for note in results.cards.get(file, {}).get("notes", [])]
    return f"{text}\n\n{_NOTE}{''.join(notes)}{_outdated(results)}{_age(revision)}"


def _text(frame: pd.DataFrame, markdown: bool) -> str:
    return frame.to_markdown(index=False) if markdown else frame.to_string(index=False)


def conflicts(rows: Sequence[Row]) -> str:
    """Return a line for each file of whose scores some are better and some worse: which to believe; empty for none."""
    lines = []
    for file in dict.fromkeys(row.file for row in rows):
        of_file = [row for row in rows if row.file == file]
        words = {row.verdict.partition(" ")[0].rstrip(",") for row in of_file}
        whole = next((row for row in of_file if row.name == _WHOLE), None)
        if whole and {"better", "worse"} <= words:
            lines.append(
                f"\n{file}: some scores are better and some worse. Believe `{_WHOLE}` first ({whole.verdict}): it "
                "weighs likeness and variety together, and stronger guidance trades recall and diversity for precision "
                "and label accuracy."
            )
    return "".join(lines)


def _apart(rows: Sequence[Row], here: bool) -> str:
    """Return a line for each file with scores that do not compare."""
    files = {row.file: [each for each in rows if each.file == row.file and each.differing] for row in rows}
    lines = []
    for file, apart in files.items():
        if apart:
            why = list(dict.fromkeys(key for row in apart for key in row.differing))
            more = f" and {len(why) - _NAMED} more" if len(why) > _NAMED else ""
            many = f"{len(apart)} scores do" if len(apart) > 1 else "1 score does"
            lines.append(
                f"\n{file}: {many} not compare, since these differ: {', '.join(why[:_NAMED])}{more}. "
                "`--all` shows them."
            )
    if here and rows and all(row.differing for row in rows):
        lines.append(
            "\nIs it other data, or another evaluator? Then commit what you have, and compare later changes with it: "
            "`git add params.yaml dvc.lock metrics cards && git commit`."
        )
    return "".join(lines)


def _trained(old: Results, new: Results) -> str:
    """Return what is to be said where too few trainings differ in their seeds."""
    if min(old.trainings, new.trainings) >= _ENOUGH:
        return ""
    return (
        f"\nBetter and worse are said of these weights; the noise of training is unknown, with fewer than {_ENOUGH} "
        "training seeds on a side: `dvc exp run --queue -S '++train_generator.training.seed=1,2'`, then "
        "`darkroom compare --seeds`."
    )


def _alone(old: Results, new: Results) -> str:
    """Return a line for each file of metrics that holds scores in one of two revisions alone."""
    files = {each.name: [name for name, scores in each.metrics.items() if scores] for each in (old, new)}
    lines = [
        f"\n{one.name} alone has scores of: {', '.join(names)}."
        for one, other in ((old, new), (new, old))
        if (names := sorted(set(files[one.name]) - set(files[other.name])))
    ]
    return "".join(lines)


def _outdated(results: Results) -> str:
    """Return a line for each file that is not of params.yaml."""
    return "".join(f"\nmetrics/{file}.json {state}." for file, state in results.outdated.items())


def stale() -> bool:
    """Return whether DVC finds something out of date in the working tree, whose scores then are older than it."""
    from darkroom.dag.repo import observe

    with suppress(DarkroomError):  # no repository of DVC, so there is nothing to say
        return bool(observe().changed)
    return False


def _age(*revisions: str) -> str:
    """Return what is to be said of scores of a working tree that is out of date."""
    if WORKSPACE in revisions and not any(Path("models").glob("*")):
        return "\nNothing was trained in this clone, its scores came with it: run `snakemake --cores all` first."
    if WORKSPACE not in revisions or not stale():
        return ""
    return "\nThe working tree is out of date: its scores are older than its parameters, code or data (`dvc status`)."


def more_copies(old: Results, new: Results, rows: Iterable[Row]) -> str:
    """Return a line for each file whose distance is better in one revision, which copies more; empty for none.

    More copies: a share that is higher by two standard errors, or a C_T below -3 that is lower by two of them. `rows`
    are those of `compare`.
    """
    better: dict[str, dict[bool, list[str]]] = {}
    for row in rows:
        word = row.verdict.partition(" ")[0].rstrip(",")
        if row.name in _DISTANCES and word in ("better", "worse"):
            better.setdefault(row.file, {}).setdefault(word == "better", []).append(row.name)
    lines = []
    for file, found in better.items():
        for newer, names in found.items():
            one, other = (new, old) if newer else (old, new)
            if copied := _more(other.metrics[file], one.metrics[file], other.name, one.name):
                lines.append(
                    f"\nWarning: {file}.{names[0]} is better in {one.name}, which copies more training images: "
                    f"{'; '.join(copied)}. A copier has the best distance from what it was trained on: look at the "
                    "pairs on the page (Memorisation)."
                )
    return "".join(lines)


def _more(less: Mapping[str, float], more: Mapping[str, float], lesser: str, greater: str) -> list[str]:
    """Return the numbers of copies that are higher in `more`, with those of both."""
    found = []
    for space in SPACES:
        name = f"copies_{space}"
        if name in less and name in more:
            error = math.hypot(less[f"{name}_se"], more[f"{name}_se"])
            if more[name] - less[name] > THRESHOLD * error:
                found.append(f"{name} {percent(more[name])} in {greater}, {percent(less[name])} in {lesser}")
        name = f"ct_{space}"
        if name in less and name in more and more[name] < min(_NEAR, less[name] - _FALL):
            found.append(f"{name} {fixed(more[name], 1)} in {greater}, {fixed(less[name], 1)} in {lesser}")
    return found
