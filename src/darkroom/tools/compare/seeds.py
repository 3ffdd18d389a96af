"""Combine runs that differ only in seeds: their mean, and the standard error between them."""

import math
import statistics
from collections.abc import Sequence
from typing import Any

from darkroom.check.check import completed
from darkroom.errors import DarkroomError
from darkroom.params.section import PARAMS
from darkroom.params.yaml_text import parse_yaml
from darkroom.report.numbers import flat
from darkroom.report.scores import error_of
from darkroom.tools.compare.revisions import WORKSPACE, Results, commit_of, experiments, git, read_results
from darkroom.tools.compare.verdicts import differing_protocol, known, standard_error

Keys = dict[str, str]  # of params.yaml, dotted, with their values as text


def read_runs(revisions: str, also: bool = False) -> Results:
    """Return the results of one revision, or of several with commas between them, as one.

    Args:
        revisions: names, as `read_results` knows them.
        also: include all experiments with the baseline of the first one that differ from it only in seeds.

    Raises:
        DarkroomError: a revision does not exist, or two differ in a parameter other than seeds, or in their protocols.
    """
    names = list(dict.fromkeys(name for name in revisions.split(",") if name))
    if not names:
        raise DarkroomError(f"`{revisions}` names no revision: give a commit, branch, tag or experiment.")
    if len(names) == 1 and not also:
        return read_results(names[0])
    every = dict.fromkeys(names) | dict.fromkeys(_beside(names[0]) if also else ())
    params = completed_params(list(every))
    first, *others = names
    for name in others:
        if differing := differing_keys(params[first], params[name]):
            raise DarkroomError(
                f"{first} and {name} cannot be combined: they differ in `{differing[0]}`, which is not a seed. "
                "Compare them with each other instead."
            )
    chosen: dict[str, Keys] = {}
    for name, keys in params.items():
        if keys in chosen.values():
            if name in names:
                raise DarkroomError(f"{name} has the same parameters and seeds as another given run: remove it.")
        elif name in names or not differing_keys(params[first], keys):
            chosen[name] = keys
    together = {name: read_results(name) for name in chosen}
    return _mean(revisions, together, len({_trained(each) for each in chosen.values()}))


def completed_params(revisions: Sequence[str]) -> dict[str, Keys]:
    """Return the values of params.yaml of revisions, with all defaults if the current schema reads all of them.

    So an explicit seed equals the same default seed.
    """
    params = {name: _params(name) for name in revisions}
    try:
        return {name: dict(flat(completed(values))) for name, values in params.items()}
    except DarkroomError:
        return {name: dict(flat(values)) for name, values in params.items()}


def _params(revision: str) -> Any:
    text = PARAMS.read_text() if revision == WORKSPACE else git("show", f"{commit_of(revision)}:{PARAMS}")
    return parse_yaml(text or "", f"params.yaml of {revision}") or {}


def differing_keys(one: Keys, other: Keys) -> list[str]:
    """Return the keys that differ, except seeds."""
    differing = (key for key in one.keys() | other.keys() if one.get(key) != other.get(key))
    return sorted(key for key in differing if key.rpartition(".")[2] != "seed")


def _trained(params: Keys) -> tuple[tuple[str, str], ...]:
    """Return the seeds of trainings, by key: that of the shared section, and those of each training."""
    return tuple(sorted((key, value) for key, value in params.items() if f".{key}".endswith(".training.seed")))


def _beside(revision: str) -> list[str]:
    """Return the experiments with the baseline of a revision."""
    every = experiments()
    baselines = [baseline for baseline, name, _ in every if name == revision]
    baseline = baselines[0] if baselines else commit_of("HEAD" if revision == WORKSPACE else revision)
    return [name for at, name, _ in every if at == baseline]


def _mean(name: str, together: dict[str, Results], trainings: int) -> Results:
    """Return means over runs, and their standard errors.

    The error is s / sqrt(runs), where s is the larger of the deviation between runs and the error within one, as two
    runs may be close by chance. Scores that are equal in all runs do not depend on the seeds: they count as one run.
    """
    first, *others = together.values()
    for other in others:
        for file, card in first.cards.items():
            theirs = other.cards.get(file)
            if card and theirs and (keys := differing_protocol(card, theirs)):
                raise DarkroomError(
                    f"{first.name} and {other.name} cannot be combined: the cards of {file} differ in "
                    f"{keys[0]}. Score both in the same way (`dvc repro`)."
                )
    metrics: dict[str, dict[str, float]] = {}
    errors: dict[str, dict[str, float]] = {}
    for file, scores in first.metrics.items():
        runs = [each.metrics[file] for each in together.values() if file in each.metrics]
        both = [score for score in scores if all(score in each for each in runs)] if len(runs) == len(together) else []
        metrics[file] = {score: statistics.fmean(each[score] for each in runs) for score in both}
        if others:
            sure = [score for score in both if score not in map(error_of, both) and len({r[score] for r in runs}) > 1]
            errors[file] = {score: _between(score, runs) for score in sure}
    label = name if not others else f"{name} ({len(together)} runs)"
    return Results(label, metrics, first.cards, errors, len(together), trainings)


def _between(score: str, runs: list[dict[str, float]]) -> float:
    shared = known(score).paired  # of the same test images: their choice is no noise
    within = [0.0 if shared else standard_error(score, each) or 0.0 for each in runs]
    return max(statistics.stdev(each[score] for each in runs), statistics.fmean(within)) / math.sqrt(len(runs))
