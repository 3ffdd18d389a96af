"""What a training is told by: means, validation losses, scores and pictures of the averaged weights."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import numpy as np
import torch

from darkroom.data.grid import image_grid, save_png
from darkroom.errors import DarkroomError
from darkroom.training.loader import validation_batches
from darkroom.training.precision import autocast
from darkroom.training.schedules import learning_rate
from darkroom.training.trainer import Record, Trainer
from darkroom.training.window import Window, means

COLUMNS, SCALE = 10, 2


def is_due(trainer: Trainer) -> bool:
    """Return whether a record is due after the last update."""
    settings, every = trainer.settings, trainer.recipe.evaluate_every
    cadences = [settings.log_every, settings.validate_every, *([every] if every else [])]
    return trainer.images == settings.images or any(map(trainer.due, cadences))


def record(trainer: Trainer) -> Record:
    """Return the means since the last record, with validation losses and scores where they are due.

    Starts a new window. Every process must ask.
    """
    settings, every = trainer.settings, trainer.recipe.evaluate_every
    found = means(trainer.processes.collect(trainer.window.state()))
    trainer.window = Window(trainer.device)
    last = trainer.images == settings.images
    told: Record = {"images": trainer.images} | {f"train/{name}": value for name, value in found.items()}
    told["learning_rate"] = learning_rate(settings, trainer.images - settings.batch)
    if last or trainer.due(settings.validate_every):
        losses = validate(trainer)
        told |= losses
        if "val/loss" in losses:
            trainer.keep_best(losses["val/loss"])
    if every and (last or trainer.due(every)):
        told |= evaluate(trainer)
    told = dict(sorted(told.items()))  # the order in which a checkpoint returns them
    trainer.records.append(told)
    return told


@torch.no_grad()
def validate(trainer: Trainer) -> Record:
    """Return the mean losses of the averaged weights over the validation images: the same noise each time."""
    sums: dict[str, tuple[float, int]] = {}
    processes = trainer.processes
    rows, size = trainer.recipe.val, trainer.settings.batch
    pass_size = trainer.pass_size(size // processes.count)
    with evaluating(trainer), trainer.memory_told(pass_size):
        for batch in validation_batches(rows, size, trainer.device, *processes.division):
            for piece in batch.split(pass_size):
                with autocast(trainer.settings, trainer.device):
                    losses = trainer.recipe.validate(piece)
                for name, values in losses.items():
                    total, count = sums.get(name, (0.0, 0))
                    sums[name] = total + float(values.to(trainer.window.dtype).sum()), count + len(values)
    present = [{name: pair for name, pair in each.items() if pair[1]} for each in processes.collect(sums)]
    return {f"val/{name}": value for name, value in means(present).items()}


@torch.no_grad()
def evaluate(trainer: Trainer) -> Record:
    """Return the recipe's scores of the averaged weights."""
    processes = trainer.processes
    with evaluating(trainer):
        scores = trainer.recipe.evaluate(*processes.division, processes.rows)
    return {f"eval/{name}": value for name, value in scores.items()}


def preview(trainer: Trainer) -> list[Path]:
    """Write a grid of images made by the averaged weights and one by the raw ones to the logs; return their paths.

    A failure is told and changes nothing: a picture is no reason to lose a training.
    """
    written = []
    for weights in ("ema", "raw"):
        try:
            with evaluating(trainer, averaged=weights == "ema"), torch.no_grad():
                images = trainer.recipe.preview()
            if images is not None and trainer.processes.first:
                path = trainer.places.logs / "grids" / f"{trainer.images:09d}-{weights}.png"
                save_png(path, image_grid(np.asarray(images), columns=COLUMNS, scale=SCALE))
                written.append(path)
        except (RuntimeError, OSError, DarkroomError) as error:
            print(f"no grid at image {trainer.images:,}: {error}")
    return written


@contextmanager
def evaluating(trainer: Trainer, averaged: bool = True) -> Iterator[None]:
    """Give the modules the averaged weights and switch dropout off inside the block; nothing else changes."""
    # Compiled for the shapes of training alone.
    eager = torch.compiler.set_stance("force_eager") if trainer.settings.compile else nullcontext()
    with trainer.ema.applied() if averaged else nullcontext(), eager:
        for module in trainer.recipe.modules.values():
            module.eval()
        try:
            yield
        finally:
            for module in trainer.recipe.modules.values():
                module.train()
