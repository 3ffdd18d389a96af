"""The program that is killed: one life of a training, from wherever the last one came to.

`python -m torture.worker ARGUMENTS`, where ARGUMENTS are JSON; or `live(arguments)` in a fork that has its imports.
"""

import json
import os
import sys
import traceback
from dataclasses import replace
from pathlib import Path
from typing import Any

from darkroom.device import set_up_device
from darkroom.errors import DarkroomError
from darkroom.params.training import Training
from darkroom.training.loop import train
from darkroom.training.recipe import Batch, Losses, Phase, Recipe
from darkroom.training.start import OutputPaths
from darkroom.training.train_state import TrainState
from helpers import run, training
from torture.arguments import BATCH, SEEN, Arguments
from torture.faults import CRASHES, commit
from torture.recipes import GANRecipe, dit_recipe, store_latents
from torture.tokenizers import tokenizer_recipe

# Neither divides the other, so that a checkpoint finds half a window of losses.
_EVERY = {"log_every": 3 * BATCH, "validate_every": 20 * BATCH}
# Every kind of state is in one of them: averages of several kinds, a loss scaler, a codebook that moves once an update.
_TRAINING: dict[str, dict[str, Any]] = {
    "gan": {"select": "best"},
    "dit": {"precision": "fp16"},
    "vqgan": {"select": "best"},
}
_HALF = {"micro_batch": BATCH // 2}
_RUN: dict[str, dict[str, Any]] = {"gan": _HALF, "dit": {"workers": 2}, "kl": _HALF, "vqgan": _HALF, "vq_ar": _HALF}


def _recipe(arguments: Arguments, settings: Training) -> Recipe:
    if arguments.model == "gan":
        return GANRecipe()
    if arguments.model == "dit":
        return dit_recipe(Path(arguments.data))
    return tokenizer_recipe(arguments.model, settings)


def _watched(phase: Phase, number: int, diary: int) -> Phase:
    """Write the position and the loss of each pass to the diary before anything follows from it."""

    def loss(batch: Batch) -> Losses:
        found = phase.loss(batch)
        os.write(diary, SEEN.pack(number, int(batch.positions[0]), float(found["loss"])))
        return found

    return replace(phase, loss=loss)


def _modules(trainer: TrainState) -> bytes:
    """Return every parameter and buffer with its name."""
    state = {f"{n}/{k}": v for n, m in trainer.recipe.modules.items() for k, v in m.state_dict().items()}
    return b"".join(name.encode() + value.contiguous().numpy().tobytes() for name, value in sorted(state.items()))


def work(arguments: Arguments) -> None:
    """Train to the end and write what the training gave: weights, averages and records."""
    set_up_device(threads=1, device="cpu")
    folder = Path(arguments.folder)
    state = Path(arguments.state or folder / "state")
    if arguments.crash:
        commit(CRASHES[arguments.crash], state, arguments.at)
    images, more = arguments.updates * BATCH, _TRAINING.get(arguments.model, {})
    settings = training(seed=3, images=images, batch=BATCH, learning_rate=2e-3, schedule="cosine", **_EVERY, **more)
    recipe = _recipe(arguments, settings)
    diary = os.open(folder / "diary", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    recipe.phases = tuple(_watched(phase, number, diary) for number, phase in enumerate(recipe.phases))
    trainer = train(
        recipe,
        settings,
        run(max_lost_seconds=arguments.max_lost_seconds, keep=arguments.keep, **_RUN.get(arguments.model, {})),
        OutputPaths(state, folder / "curves", folder / "logs"),
    )
    results = folder / "results"
    results.mkdir(exist_ok=True)
    (results / "weights").write_bytes(_modules(trainer))
    with trainer.averaged():
        (results / "ema").write_bytes(_modules(trainer))
    (results / "records").write_text(json.dumps(trainer.records))


def live(arguments: Arguments) -> int:
    """Do the work, with all that is said in FOLDER/log, and return the exit status as the runner would."""
    log = os.open(Path(arguments.folder) / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    sys.stdout = os.fdopen(1, "w", buffering=1, closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)
    try:
        if arguments.model == "latents":
            store_latents(Path(arguments.data))
        else:
            work(arguments)
    except DarkroomError as error:
        print(f"error: {error}")
        return 1
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(live(Arguments(**json.loads(sys.argv[1]))))
