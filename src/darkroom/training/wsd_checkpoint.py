"""Start a longer training of the schedule `wsd` from the checkpoint at the start of a shorter one's decay.

Until its decay starts, a training does not depend on its length. So it writes the checkpoint of that moment to
`.darkroom/stable/STAGE-KEY/`, where KEY is the hash of its identity without its length, and a training that differs
only in length starts from it. The weights are the same, bit for bit, as from image 0. One checkpoint per stage is
kept, until the folder is removed.
"""

# No effect on any output: finds a checkpoint of the same training

import shutil
from pathlib import Path
from typing import Any

from darkroom.artifacts.manifest import ArtifactError
from darkroom.params.training import Training
from darkroom.training import checkpoint
from darkroom.training.guards import is_disk_full
from darkroom.training.recipe import Recipe
from darkroom.training.state import STABLE, read_entry
from darkroom.training.train_state import TrainState

_KEPT = 2  # checkpoints per training: for two lengths


def is_independent_of_length(recipe: Recipe, settings: Training) -> bool:
    """Return whether only the decay depends on the length of a training."""
    return settings.schedule == "wsd" and not settings.save_every and not recipe.knows_length


def find(state: Path, recipe: Recipe, settings: Training, code: Any) -> Path | None:
    """Return the furthest checkpoint that a training without its own can start from, or None.

    It is of the same code, and from before the decay.
    """
    place = read_entry(state, STABLE)
    if not place or not is_independent_of_length(recipe, settings):
        return None
    for folder in reversed(checkpoint.folders(Path(place["folder"]))):
        try:
            manifest = checkpoint.verify(folder)
        except ArtifactError:
            continue
        images, facts = manifest["images"], manifest["facts"]
        if images <= settings.decay_start and facts["code"] == code:
            return folder
    return None


def leave(state: TrainState, place: Path) -> None:
    """Write the checkpoint at the start of the decay; every process must call this after every step.

    A full disk does not stop the training, whose state folder is `place`; the error is printed.
    """
    if state.images != state.settings.decay_start or not is_independent_of_length(state.recipe, state.settings):
        return
    groups, metadata = state.state_dict()
    if not state.processes.first or not (stable := read_entry(place, STABLE)):
        return
    folder = Path(stable["folder"])
    stage = folder.name.rpartition("-")[0]
    try:
        for other in folder.parent.glob(f"{stage}-*"):
            if other != folder and other.name.rpartition("-")[0] == stage:
                shutil.rmtree(other)
        checkpoint.save(folder, state.images, groups, metadata, keep=_KEPT)
    except OSError as error:
        if not is_disk_full(error):
            raise
        print(f"cannot write the checkpoint for longer trainings to {folder}: the disk is full.")
