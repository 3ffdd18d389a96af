"""Runs that differ in seeds alone, taken together: their mean, and the error that shows between them."""

import math
import statistics
from pathlib import Path

from ruamel.yaml import YAML, YAMLError

from darkroom.errors import DarkroomError
from darkroom.report.cards import flat
from darkroom.report.scores import error_of
from darkroom.tools.compare.revisions import WORKSPACE, Results, commit_of, experiments, git, read_results
from darkroom.tools.compare.verdicts import differing_protocol

Keys = dict[str, str]  # of params.yaml, dotted, with their values as text


def read_runs(revisions: str, also: bool = False) -> Results:
    """Return the results of one revision, or of several with commas between them, as one.

    Args:
        revisions: names, as `read_results` knows them.
        also: take in all experiments with the baseline of the first one that differ from it in seeds alone.

    Raises:
        DarkroomError: there is no such revision, or two differ in a parameter that is no seed, or in their protocols.
    """
    names = list(dict.fromkeys(name for name in revisions.split(",") if name))
    if len(names) == 1 and not also:
        return read_results(names[0])
    params = {name: _params(name) for name in names}
    first, *others = names
    for name in others:
        if differing := _differing(params[first], params[name]):
            raise DarkroomError(
                f"{first} and {name} are to be taken together, and differ in `{differing[0]}`, which is no seed: "
                "compare them with each other instead."
            )
    if also:
        params |= _seeds_of(first, params)
    together = {name: read_results(name) for name in params}
    return _mean(revisions, together, len({_trained(each) for each in params.values()}))


def _params(revision: str) -> Keys:
    """Return what stands in params.yaml of a revision."""
    text = (
        Path("params.yaml").read_text()
        if revision == WORKSPACE
        else git("show", f"{commit_of(revision)}:params.yaml")
    )  # fmt: skip
    try:
        return dict(flat(YAML(typ="safe").load(text or "") or {}))
    except YAMLError as error:
        raise DarkroomError(f"params.yaml of {revision} is not YAML: {' '.join(str(error).split())}.") from error


def _is_seed(key: str) -> bool:
    return key.rpartition(".")[2] == "seed"


def _differing(one: Keys, other: Keys) -> list[str]:
    """Return the keys in which two differ, seeds left out."""
    return sorted(key for key in one.keys() | other.keys() if not _is_seed(key) and one.get(key) != other.get(key))


def _trained(params: Keys) -> tuple[tuple[str, str], ...]:
    """Return the seeds of trainings, by key."""
    return tuple(sorted((key, value) for key, value in params.items() if _is_seed(key) and key.startswith("train_")))


def _seeds_of(revision: str, known: dict[str, Keys]) -> dict[str, Keys]:
    """Return the experiments that differ in seeds alone from a revision, and from all that are known."""
    every = experiments()
    baselines = [baseline for baseline, name, _ in every if name == revision]
    baseline = baselines[0] if baselines else commit_of("HEAD" if revision == WORKSPACE else revision)
    found: dict[str, Keys] = {}
    for at, name, _ in every:
        if at != baseline or name in known:
            continue
        params = _params(name)
        if not _differing(known[revision], params) and params not in [*known.values(), *found.values()]:
            found[name] = params
    return found


def _mean(name: str, together: dict[str, Results], trainings: int) -> Results:
    """Return means over runs, and their standard errors s / sqrt(runs)."""
    first, *others = together.values()
    for other in others:
        for file, card in first.cards.items():
            pair = card, other.cards.get(file, {})
            if all("protocol" in each for each in pair) and (keys := differing_protocol(*pair)):
                raise DarkroomError(
                    f"{first.name} and {other.name} are to be taken together, and the cards of {file} differ in "
                    f"{keys[0]}: score both in the same way (`dvc repro`)."
                )
    metrics: dict[str, dict[str, float]] = {}
    errors: dict[str, dict[str, float]] = {}
    for file, scores in first.metrics.items():
        runs = [each.metrics[file] for each in together.values() if file in each.metrics]
        both = [score for score in scores if all(score in each for each in runs)] if len(runs) == len(together) else []
        metrics[file] = {score: statistics.fmean(each[score] for each in runs) for score in both}
        if others:
            sure = [score for score in both if score not in map(error_of, both)]
            errors[file] = {
                score: statistics.stdev(each[score] for each in runs) / math.sqrt(len(runs)) for score in sure
            }
    label = name if not others else f"{name} ({len(together)} runs)"
    return Results(label, metrics, first.cards, errors, len(together), trainings)
