"""Print the tables of `darkroom scores` and `darkroom compare`."""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import pandas as pd
from typer import Argument, Option

from darkroom.errors import DarkroomError
from darkroom.report.scores import too_few
from darkroom.tools import command
from darkroom.tools.compare.grouped import GROUPED, as_text, grouped
from darkroom.tools.compare.revisions import WORKSPACE, Results, read_results
from darkroom.tools.compare.seeds import read_runs
from darkroom.tools.compare.summary import limit_of, lines, shown_file
from darkroom.tools.compare.verdicts import EQUAL, THRESHOLD, Row, compare, standard_error

_NOTE = "±: one standard error, from the samples only."
_NOTES = {
    False: f"{_NOTE} Differences below {THRESHOLD:g} standard errors are within noise.",
    True: "±: one standard error, for several runs that between them. Differences below Student's t at 95% "
    "are within noise.",
}
_NAMED = 4  # differences between two protocols that are listed
_ENOUGH = 3  # training seeds from which a verdict applies to the method


def _number(value: float, se: float | None, few: str = "") -> str:
    return f"{value:.4g} {few}".rstrip() if se is None else f"{value:.4g} ± {se:.2g}"


_RUNS = "a commit, branch, tag or experiment, or several that differ only in seeds: A,B,C"
_Markdown = Annotated[bool, Option("--md", help="print Markdown")]


@command("Score and compare", "compare", "Compare revisions: do they differ by more than noise?")
def compare_revisions(
    revisions: Annotated[
        list[str] | None, Argument(help=f"{_RUNS}; workspace: the working tree; default: HEAD and workspace")
    ] = None,
    markdown: _Markdown = False,
    csv: Annotated[
        bool, Option("--csv", help="of three or more: print CSV, with errors in columns of their own")
    ] = False,
    seeds: Annotated[bool, Option("--seeds", help="of two: include the experiments that differ only in seeds")] = False,
    everything: Annotated[bool, Option("--all", help="of two: also show equal and incomparable scores")] = False,
) -> str:
    """Return two revisions side by side as `table` does, or a line for each setting of three and more.

    Raises:
        DarkroomError: an unknown revision, or one without metrics; several that differ in more than seeds.
    """
    names = revisions or []
    if (csv and len(names) <= 2) or (len(names) > 2 and (seeds or everything)):
        raise DarkroomError("--csv is for three and more revisions, --seeds and --all are for two.")
    if len(names) <= 2:
        old, new = [*names, *["HEAD", WORKSPACE][len(names) :]]
        return table(old, new, markdown, seeds, everything)
    frame = grouped(",".join(names).split(","))
    if csv:
        return frame.to_csv(index=False).rstrip()
    return f"{_text(as_text(frame), markdown)}\n\n{GROUPED}"


def table(
    old: str = "HEAD", new: str = WORKSPACE, markdown: bool = False, seeds: bool = False, everything: bool = False
) -> str:
    """Return the scores of two revisions side by side, their difference, and whether it is noise.

    Raises:
        DarkroomError: an unknown revision, or one without metrics; several that differ in more than seeds.
    """
    results = [read_runs(revisions, seeds) for revisions in (old, new)]
    every = compare(*results)
    rows = [row for row in every if everything or not (row.differing or row.verdict == EQUAL)]
    frame = pd.DataFrame(
        {
            "score": [f"{row.file}.{row.name}" for row in rows],
            results[0].name: [_number(row.old, row.old_se) for row in rows],
            results[1].name: [_number(row.new, row.new_se) for row in rows],
            "difference": [_number(row.difference, row.se) for row in rows],
            "verdict": [row.verdict for row in rows],
        }
    )
    text = f"{_text(frame, markdown)}\n\n{_NOTES[max(each.runs for each in results) > 1]}\n" if rows else ""
    equal = sum(row.verdict == EQUAL for row in every)
    same = f"{equal} scores are equal in both: use `--all` to show them." if equal and not everything else ""
    apart = "" if everything else _apart(every)
    trained = _trained(*results) if rows else ""
    note = f"{same}{apart}{trained}{_alone(*results)}{''.join(map(_outdated, results))}"
    return f"{text}{note.strip()}{_age(*old.split(','), *new.split(','))}"


@command("Score and compare", "scores", "Show all scores of a revision, with their standard errors.")
def scores(
    revision: Annotated[str, Argument(help="a commit, branch, tag or experiment")] = WORKSPACE,
    markdown: _Markdown = False,
    everything: Annotated[bool, Option("--all", help="show all scores, one column per file of metrics")] = False,
) -> str:
    """Return five scores of generated images beside those of real ones, and what limits the result; or all scores.

    Notes of the cards follow. Without generated images, all scores are shown.

    Raises:
        DarkroomError: an unknown revision, or one without metrics.
    """
    results = read_results(revision)
    first = None if everything else shown_file(results)
    files = {file: values for file, values in results.metrics.items() if values and first in (None, file)}
    stale = {file: f"{file} (stale)" for file in results.outdated}
    notes = [f"\n{file}: {note}." for file in files for note in results.cards.get(file, {}).get("notes", [])]
    end = f"{''.join(notes)}{_outdated(results)}{_age(revision)}"
    if first is not None:
        rows = [(name, _number(*run), _number(*real) if real else "") for name, run, real in lines(results, first)]
        frame = pd.DataFrame(rows, columns=["score", stale.get(first, first), "real images"])
        more = "`darkroom scores --all` shows all scores."
        return f"{_text(frame, markdown)}\n\n{_NOTE} {more}{limit_of(results, first)}{end}"
    names = dict.fromkeys(name for values in files.values() for name in sorted(values) if not name.endswith("_se"))
    columns = {
        file: [_number(of[name], standard_error(name, of), too_few(name, of)) if name in of else "" for name in names]
        for file, of in files.items()
    }
    frame = pd.DataFrame({"score": list(names), **columns}).rename(columns=stale)
    text = _text(frame, markdown) if names else "No stage has scored the data of params.yaml yet."
    return f"{text}\n\n{_NOTE}{end}"


def _text(frame: pd.DataFrame, markdown: bool) -> str:
    return frame.to_markdown(index=False) if markdown else frame.to_string(index=False)


def _apart(rows: Sequence[Row]) -> str:
    files = {row.file: [each for each in rows if each.file == row.file and each.differing] for row in rows}
    lines = []
    for file, apart in files.items():
        if apart:
            why = list(dict.fromkeys(key for row in apart for key in row.differing))
            more = f" and {len(why) - _NAMED} more" if len(why) > _NAMED else ""
            many = f"{len(apart)} scores do" if len(apart) > 1 else "1 score does"
            lines.append(
                f"\n{file}: {many} not compare, because these differ: {', '.join(why[:_NAMED])}{more}. "
                "Use `--all` to show them."
            )
    return "".join(lines)


def _trained(old: Results, new: Results) -> str:
    if min(old.trainings, new.trainings) >= _ENOUGH:
        return ""
    return (
        f"\nBetter and worse apply to these weights only; the noise of training is unknown with fewer than {_ENOUGH} "
        "training seeds per side. Run `darkroom sweep seeds -S '++train_generator.training.seed=1,2'`, then "
        "`darkroom compare --seeds`."
    )


def _alone(old: Results, new: Results) -> str:
    files = {each.name: [name for name, scores in each.metrics.items() if scores] for each in (old, new)}
    return "".join(
        f"\nonly {one.name} has scores of: {', '.join(names)}."
        for one, other in ((old, new), (new, old))
        if (names := sorted(set(files[one.name]) - set(files[other.name])))
    )


def _outdated(results: Results) -> str:
    return "".join(f"\nmetrics/{file}.json {state}." for file, state in results.outdated.items())


def stale() -> bool:
    """Return whether DVC finds anything out of date in the working tree, so that its scores are older."""
    from darkroom.dag.repo import observe

    with suppress(DarkroomError):  # no repository of DVC, so there is nothing to say
        return bool(observe().changed)
    return False


def _age(*revisions: str) -> str:
    if WORKSPACE in revisions and not any(Path("models").glob("*")):
        return "\nNothing was trained in this clone; the scores were committed. Run `snakemake --cores all` first."
    if WORKSPACE not in revisions or not stale():
        return ""
    return "\nThe working tree is out of date: its scores are older than its parameters, code or data (`dvc status`)."
