"""Start a training: choose its checkpoint, initialise its weights, and wrap its modules."""

from dataclasses import dataclass
from pathlib import Path

import torch

from darkroom.errors import DarkroomError
from darkroom.params.run import Run
from darkroom.params.training import Training
from darkroom.training import checkpoint, wsd_checkpoint
from darkroom.training.changed_code import choose_checkpoint, work_name
from darkroom.training.initial import initialise
from darkroom.training.muon import Muon
from darkroom.training.optimizer import build_optimizer
from darkroom.training.precision import checkpoint_activations, set_memory_format
from darkroom.training.processes import Processes
from darkroom.training.recipe import Recipe
from darkroom.training.remote import open_place
from darkroom.training.state import CODE, read_entry
from darkroom.training.train_state import TrainState


@dataclass(frozen=True)
class OutputPaths:
    """Where a training writes: its state, its curves (a declared output), and its logs (not declared)."""

    state: Path
    curves: Path
    logs: Path


def open_training(recipe: Recipe, settings: Training, run: Run, places: OutputPaths) -> TrainState:
    """Return a training at its first image, or at its newest checkpoint.

    Raises:
        DarkroomError: settings do not fit the model or the processes, a checkpoint is of another model, or initial
            weights or stored checkpoints cannot be read.
    """
    processes = Processes(settings.processes)
    if run.activation_checkpointing:
        checkpoint_activations(recipe.blocks)
    if processes.sharded and settings.save_every:
        raise DarkroomError("`save_every` does not work with FSDP, which shards the weights: leave it empty.")
    code = read_entry(places.state, CODE) if processes.first else {}
    folder, changed = processes.collect(_checkpoint(recipe, settings, run, places.state, code, processes.first))[0]
    modules = dict(recipe.modules)
    if folder is None:
        with processes.accelerator.main_process_first():  # one downloads, the others find it
            initialise(modules, settings.init)
    optimizers = _wrap(recipe, settings, processes)
    state = TrainState(recipe, settings, run, processes, modules, optimizers)
    state.code = code
    if folder is not None:
        images, groups, values = checkpoint.read(folder)
        state.load_state_dict(images, groups, values)
        state.code_changed_at += [images] * changed
        if processes.first:
            resumed = folder.parent == places.state
            begins = "resumes" if resumed else "continues a shorter training from before its decay:"
            print(f"{begins} at image {state.images:,} of {state.settings.images:,}")
    return state


def _checkpoint(
    recipe: Recipe, settings: Training, run: Run, state: Path, code: dict[str, dict[str, str]], first: bool
) -> tuple[Path | None, bool]:
    """Return the checkpoint to start from, and whether other code wrote it.

    It is the newest in the state folder, else in `run.checkpoints_from`, else of a shorter training. Processes other
    than the first get None.
    """
    if not first:
        return None, False
    begin, changed = choose_checkpoint(state, code, run.changed_code)
    if begin is not None:
        return begin, changed
    place = open_place(run.checkpoints_from, work_name(state, code), run.keep)
    if place is not None and settings.save_every:
        raise DarkroomError(
            "the weights that `save_every` writes next to the checkpoints are not copied elsewhere: "
            f"copy {state} by hand, or train without `run.checkpoints_from`."
        )
    folder = place.fetch(state) if place is not None else None
    return folder or wsd_checkpoint.find(state, recipe, settings, code), False


def _wrap(recipe: Recipe, settings: Training, processes: Processes) -> dict[str, torch.optim.Optimizer]:
    """Move the modules of a recipe to the device, put their wrappers in their place, and return their optimizers."""
    optimizers: dict[str, torch.optim.Optimizer] = {}
    betas = {phase.module: phase.betas for phase in recipe.phases}
    for name, module in list(recipe.modules.items()):
        module.to(processes.device)
        set_memory_format(module, settings)
        if name in betas:
            optimizers[name] = build_optimizer(module, settings, betas[name])
            if processes.sharded and isinstance(optimizers[name], Muon):
                raise DarkroomError("`optimizer: muon` needs whole matrices, which FSDP shards: use adamw.")
        recipe.modules[name] = processes.prepare(module, optimizers.get(name))
    return optimizers
