"""The records of a training: mean losses, validation losses and scores of its averaged weights."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import torch

from darkroom.params.training import learning_rate
from darkroom.training.curves import Record
from darkroom.training.loader import validation_batches
from darkroom.training.precision import autocast
from darkroom.training.recipe import Evaluate
from darkroom.training.train_state import TrainState, Window, means


def passed(every: int, before: int, images: int) -> bool:
    """Return whether a multiple of `every` images lies in (before, images]."""
    return images // every > before // every


def is_due(state: TrainState, before: int) -> bool:
    """Return whether a record is due after the optimizer step that began after `before` images."""
    settings = state.settings
    cadences = [settings.log_every, settings.validate_every, *(every for every, _ in state.recipe.evaluations)]
    return state.images == settings.images or any(passed(every, before, state.images) for every in cadences)


def record(state: TrainState, before: int) -> Record:
    """Return the means since the last record, with validation losses and scores if they are due.

    Starts a new window. Every process must call it.
    """
    settings, recipe = state.settings, state.recipe
    means_now = means(state.processes.collect(state.window.state()))
    state.window = Window(state.device)
    last = state.images == settings.images
    entry: Record = {"images": state.images} | {f"train/{name}": value for name, value in means_now.items()}
    entry["epoch"] = state.images / len(recipe.train)  # how often each image was seen, on average
    entry["learning_rate"] = learning_rate(settings, before)
    if last or passed(settings.validate_every, before, state.images):
        losses = validate(state)
        entry |= losses
        if "val/loss" in losses:
            state.keep_best(losses["val/loss"])
    recipe.histograms = {}
    for every, scores in recipe.evaluations:
        if last or passed(every, before, state.images):
            entry |= evaluate(state, scores)
    entry = dict(sorted(entry.items()))  # the order in which a checkpoint returns them
    state.records.append(entry)
    return entry


@torch.no_grad()
def validate(state: TrainState) -> Record:
    """Return the mean losses of the averaged weights over the validation images: the same noise each time."""
    sums: dict[str, tuple[float, int]] = {}
    processes = state.processes
    rows, size = state.recipe.val, state.settings.batch
    pass_size = state.pass_size(size // processes.count)
    with evaluating(state), state.memory_explained(pass_size):
        for batch in validation_batches(rows, size, state.device, *processes.division):
            for piece in batch.split(pass_size):
                with autocast(state.settings, state.device):
                    losses = state.recipe.validate(piece)
                for name, values in losses.items():
                    total, count = sums.get(name, (0.0, 0))
                    sums[name] = total + float(values.to(state.window.dtype).sum()), count + len(values)
    present = [{name: pair for name, pair in each.items() if pair[1]} for each in processes.collect(sums)]
    return {f"val/{name}": value for name, value in means(present).items()}


@torch.no_grad()
def evaluate(state: TrainState, scores: Evaluate) -> Record:
    """Return the results of one of the recipe's evaluations for the averaged weights."""
    processes = state.processes
    with evaluating(state):
        values = scores(*processes.division, processes.rows)
    return {f"eval/{name}": value for name, value in values.items()}


@contextmanager
def evaluating(state: TrainState, averaged: bool = True) -> Iterator[None]:
    """Use the averaged weights without dropout inside the block; nothing else changes."""
    # Compiled only for the shapes of training.
    eager = torch.compiler.set_stance("force_eager") if state.settings.compile else nullcontext()
    with state.ema.applied() if averaged else nullcontext(), eager:
        for module in state.recipe.modules.values():
            module.eval()
        try:
            yield
        finally:
            for module in state.recipe.modules.values():
                module.train()
