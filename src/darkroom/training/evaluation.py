"""What is recorded of a training: means of its losses, validation losses, scores and pictures of averaged weights."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from darkroom.artifacts.atomic import write_bytes
from darkroom.data.grid import contact_sheet, save_png
from darkroom.errors import DarkroomError
from darkroom.training.loader import validation_batches
from darkroom.training.precision import autocast
from darkroom.training.recipe import Evaluate
from darkroom.training.schedules import learning_rate

if TYPE_CHECKING:
    from darkroom.training.trainer import Trainer

Record = dict[str, Any]  # images seen under `images`, and numbers by name

# By name: the sum of the values, and how many they were.
Sums = dict[str, tuple[float, int]]


class Window:
    """Sums of logged values since the last record, which stay on the device until then."""

    def __init__(self, device: torch.device) -> None:
        # Summed in float64, which MPS does not have.
        self.dtype = torch.float32 if device.type == "mps" else torch.float64
        self._sums: dict[str, Tensor | float] = {}
        self._counts: dict[str, int] = {}

    def add(self, values: Mapping[str, Tensor | float]) -> None:
        """Take in the values of one optimizer step, scalars."""
        for name, value in values.items():
            if isinstance(value, Tensor):
                value = value.detach().to(self.dtype)
            self._sums[name] = self._sums.get(name, 0.0) + value
            self._counts[name] = self._counts.get(name, 0) + 1

    def state(self) -> Sums:
        """Return the sums and counts as numbers, which return from JSON bit for bit."""
        return {name: (float(value), self._counts[name]) for name, value in self._sums.items()}

    def load(self, states: Sequence[Sums], rank: int, count: int) -> None:
        """Take what `state` returned in each process: one's own; from another number of processes, an equal part."""
        if len(states) != count:
            found = means(states)
            counts = {name: number for state in states for name, (_, number) in state.items()}
            states = [{name: (value * counts[name], counts[name]) for name, value in found.items()}] * count
        self._sums = {name: value for name, (value, _) in states[rank].items()}
        self._counts = {name: number for name, (_, number) in states[rank].items()}


def means(states: Iterable[Sums]) -> dict[str, float]:
    """Return the mean of each value over the windows of all processes."""
    sums: dict[str, float] = {}
    counts: dict[str, int] = {}
    for state in states:
        for name, (value, count) in state.items():
            sums[name] = sums.get(name, 0.0) + value
            counts[name] = counts.get(name, 0) + count
    return {name: value / counts[name] for name, value in sums.items()}


def is_due(trainer: Trainer) -> bool:
    """Return whether a record is due after the last optimizer step."""
    settings = trainer.settings
    cadences = [settings.log_every, settings.validate_every, *(every for every, _ in trainer.recipe.evaluations)]
    return trainer.images == settings.images or any(map(trainer.due, cadences))


def record(trainer: Trainer) -> Record:
    """Return the means since the last record, with validation losses and scores where they are due.

    Starts a new window. Every process must call it.
    """
    settings, recipe = trainer.settings, trainer.recipe
    means_now = means(trainer.processes.collect(trainer.window.state()))
    trainer.window = Window(trainer.device)
    last = trainer.images == settings.images
    found: Record = {"images": trainer.images} | {f"train/{name}": value for name, value in means_now.items()}
    found["epoch"] = trainer.images / len(recipe.train)  # how often each image was seen, on average
    found["learning_rate"] = learning_rate(settings, trainer.images - settings.batch)
    if last or trainer.due(settings.validate_every):
        losses = validate(trainer)
        found |= losses
        if "val/loss" in losses:
            trainer.keep_best(losses["val/loss"])
    recipe.histograms = {}
    for every, scores in recipe.evaluations:
        if last or trainer.due(every):
            found |= evaluate(trainer, scores)
    found = dict(sorted(found.items()))  # the order in which a checkpoint returns them
    trainer.records.append(found)
    return found


@torch.no_grad()
def validate(trainer: Trainer) -> Record:
    """Return the mean losses of the averaged weights over the validation images: the same noise each time."""
    sums: dict[str, tuple[float, int]] = {}
    processes = trainer.processes
    rows, size = trainer.recipe.val, trainer.settings.batch
    pass_size = trainer.pass_size(size // processes.count)
    with evaluating(trainer), trainer.memory_explained(pass_size):
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
def evaluate(trainer: Trainer, scores: Evaluate) -> Record:
    """Return what one of the recipe's evaluations says of the averaged weights."""
    processes = trainer.processes
    with evaluating(trainer):
        found = scores(*processes.division, processes.rows)
    return {f"eval/{name}": value for name, value in found.items()}


def write_histograms(trainer: Trainer) -> None:
    """Write what the evaluation has counted to the logs, as `histograms/IMAGES-NAME.tsv`: a value and its count a line.

    A failure is printed and changes nothing.
    """
    try:
        for name, counts in trainer.recipe.histograms.items():
            lines = ["value\tcount", *(f"{value}\t{count}" for value, count in enumerate(counts.tolist()))]
            path = trainer.places.logs / "histograms" / f"{trainer.images:09d}-{name}.tsv"
            write_bytes(path, ("\n".join(lines) + "\n").encode())
    except OSError as error:
        print(f"no histogram at image {trainer.images:,}: {error}")


def preview(trainer: Trainer) -> list[Path]:
    """Write a grid of images made by the averaged weights and one by the raw ones to the logs; return their paths.

    A failure is printed and changes nothing: a picture is no reason to lose a training.
    """
    written = []
    for weights in ("ema", "raw"):
        try:
            with evaluating(trainer, averaged=weights == "ema"), torch.no_grad():
                images = trainer.recipe.preview()
            if images is not None and trainer.processes.first:
                path = trainer.places.logs / "grids" / f"{trainer.images:09d}-{weights}.png"
                save_png(path, contact_sheet(np.asarray(images), trainer.recipe.columns))
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
