"""Tries the precision, memory layout and compilation of the trainings that `darkroom init` proposes."""

# No effect on any output: writes params.yaml for the time that it takes, and runs stages in a scratch folder

from collections.abc import Sequence
from pathlib import Path

from darkroom.params.section import PARAMS
from darkroom.params.stage import read_yaml
from darkroom.tools.init.choice import Choice
from darkroom.tools.tune.places import key_of
from darkroom.tools.tune.trials import trials

TUNED_FROM = 900.0  # seconds of the whole DAG, from which the minute that this takes is spent
_LOG = Path("logs/init-tune.log")
_KEYS = ("precision", "tf32", "channels_last", "compile")
_COMPILES = {False: 1800.0, True: 300.0}  # seconds of a training, from which compiling is tried; on a GPU


def tuned(names: Sequence[str], gpu: bool) -> tuple[dict[str, Choice], dict[str, float]]:
    """Return what pays for the trainings of params.yaml, and how long each then takes.

    Args:
        names: of the stages that train.
        gpu: whether they run on a GPU.

    Returns:
        values by dotted key, and of each training that changes its time as a fraction of what it was.
    """
    print("trying precision, memory layout and compilation …", flush=True)
    params = read_yaml(PARAMS)
    choices: dict[str, Choice] = {}
    factors: dict[str, float] = {}
    with trials(names, _LOG) as on:
        for stage in on.chosen:
            if stage in on.lacks:
                continue
            found = on.tuned(stage, _KEYS, _COMPILES[gpu])
            if found.why or not found.changes:
                continue
            before, after = found.seconds
            why = f"tried here: the training takes {after / before:.2f} of the time"
            if after >= before:
                why = "tried here: otherwise losses or gradients depart"
            choices |= {key_of(stage, key, params): Choice(value, why) for key, value in found.changes.items()}
            factors[stage] = after / before
    return choices, factors
