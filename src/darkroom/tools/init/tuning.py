"""Tries the precision, memory layout and compilation of the trainings that `darkroom init` proposes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from darkroom.errors import DarkroomError
from darkroom.params.section import PARAMS
from darkroom.params.stage import read_yaml
from darkroom.tools.init.writing import Choice
from darkroom.tools.tune.places import key_of
from darkroom.tools.tune.search import EXACT
from darkroom.tools.tune.trials import Tuned, trials

TUNED_FROM = 900.0  # seconds of the whole DAG, from which the minute that this takes is spent
_LOG = Path("logs/init-tune.log")
_KEYS = ("precision", "tf32", "channels_last", "compile")
_COMPILES = {False: 1800.0, True: 300.0}  # seconds of a training, from which compiling is tried; on a GPU


@dataclass(frozen=True)
class Quicker:
    """What pays for the trainings of params.yaml.

    choices: by dotted key.
    saved: seconds of each training that changes.
    notes: sentences on trainings that could not be tried, or whose settings are not allowed.
    """

    choices: dict[str, Choice] = field(default_factory=dict)
    saved: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def tuned(names: Sequence[str], gpu: bool, require: Callable[[Mapping[str, Choice]], object]) -> Quicker:
    """Return what pays for the trainings of params.yaml, which are these stages.

    `require` raises DarkroomError where choices are not valid.
    """
    print("trying precision, memory layout and compilation …", flush=True)
    params = read_yaml(PARAMS)
    quicker = Quicker()
    with trials(names, _LOG) as on:
        for stage in on.chosen:
            found = None if stage in on.lacks else on.tuned(stage, _KEYS, _COMPILES[gpu])
            why = f"{on.lacks[stage]} cannot run" if found is None else found.why
            if found is None or why:
                quicker.notes.append(f"Precision and compilation of {stage} were not tried: {why}.")
                continue
            choices = {key_of(stage, key, params): choice for key, choice in _choices(found).items()}
            try:
                require({**quicker.choices, **choices})
            except DarkroomError as error:
                quicker.notes.append(f"What is quicker for {stage} is not allowed here: {error}")
                continue
            quicker.choices.update(choices)
            if choices and found.before.whole:
                quicker.saved[stage] = found.before.whole - found.taken.found.whole
    return quicker


def _choices(found: Tuned) -> dict[str, Choice]:
    """Return the changes of a training with their reasons."""
    before, after = found.before, found.taken.found
    back = "otherwise it cannot run" if before.why else "otherwise losses or gradients depart"
    pays = f"with what is tried here the training takes {after.whole / (before.whole or after.whole):.2f} of the time"
    given_up = bool(before.why) or before.departs
    return {
        key: Choice(value, f"tried here: {back}" if given_up and value == EXACT.get(key) else pays)
        for key, value in found.changes.items()
    }
