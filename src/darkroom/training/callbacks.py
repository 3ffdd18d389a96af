"""What follows an optimizer step and changes no weight: log lines, pictures, trackers.

The loop calls the callbacks of a process (`loop._callbacks`) with a `Progress` after every optimizer step. A grid,
strip or histogram that fails is printed and does not stop the training.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from accelerate import Accelerator

from darkroom.artifacts.atomic import write_bytes
from darkroom.data.grid import contact_sheet, save_png
from darkroom.errors import DarkroomError
from darkroom.training import strip
from darkroom.training.curves import Record
from darkroom.training.evaluation import passed
from darkroom.training.journal import Journal
from darkroom.training.plateau import TITLES
from darkroom.training.recipe import Recipe
from darkroom.training.strip import Strip
from darkroom.training.trackers import log_histogram, log_images, log_record


@dataclass(frozen=True)
class Progress:
    """What a callback knows of a training.

    before, images: seen before and after the optimizer step.
    end: images of the whole training, which an earlier decay lowers.
    entry: the record of this step; None: none was due.
    decided: whether the learning rate falls from here on, because `min_improvement` says so.
    """

    before: int
    images: int
    end: int
    entry: Record | None = None
    decided: bool = False


Callback = Callable[[Progress], None]
Evaluating = Callable[[bool], AbstractContextManager[None]]  # averaged weights or raw ones, without dropout


def log_to(journal: Journal, judge: str, least: float | None) -> Callback:
    """Return a callback that keeps a training's journal: its bar, its records, and where it will end.

    Args:
        journal: of this training.
        judge: the score that `min_improvement` looks at.
        least: `min_improvement`.
    """

    def log(progress: Progress) -> None:
        journal.step(progress.images)
        if progress.entry is not None:
            journal.add(progress.entry)
        if progress.decided:
            journal.ends_at(progress.end)
            print(
                f"{TITLES[judge]} has levelled off, to less than {least:.2g} for twice the images: the learning rate "
                f"falls from image {progress.images:,}, and the training ends at {progress.end:,}."
            )

    return log


def track(accelerator: Accelerator) -> Callback:
    """Return a callback that gives each record to the trackers."""

    def log(progress: Progress) -> None:
        if progress.entry is not None:
            log_record(accelerator, progress.entry)

    return log


def write_histograms(recipe: Recipe, logs: Path, accelerator: Accelerator) -> Callback:
    """Return a callback that writes the counts of an evaluation to the logs and the trackers.

    `histograms/IMAGES-NAME.tsv` has a value and its count a line.
    """

    def write(progress: Progress) -> None:
        if progress.entry is None:
            return
        for name, counts in recipe.histograms.items():
            lines = ["value\tcount", *(f"{value}\t{count}" for value, count in enumerate(counts.tolist()))]
            path = logs / "histograms" / f"{progress.images:09d}-{name}.tsv"
            try:
                write_bytes(path, ("\n".join(lines) + "\n").encode())
            except OSError as error:
                print(f"no histogram at image {progress.images:,}: {error}")
            log_histogram(accelerator, f"eval/{name}", counts, progress.images)

    return write


def draw_grids(
    recipe: Recipe, every: int, logs: Path, accelerator: Accelerator, evaluating: Evaluating, first: bool
) -> Callback:
    """Return a callback that writes grids every so many images and at the end, by averaged and by raw weights.

    Args:
        recipe: its `preview` makes the images.
        every: `run.grid_every`.
        logs: the grids are `grids/IMAGES-ema.png` and `-raw.png` there.
        accelerator: its trackers get the grids, too.
        evaluating: see `Evaluating`.
        first: whether this process writes them.
    """

    def draw(progress: Progress) -> None:
        if progress.images == progress.end or passed(every, progress.before, progress.images):
            for path in write_grids(recipe, progress.images, logs, evaluating, first):
                name = f"grid/{path.stem.partition('-')[2]}"
                log_images(accelerator, name, path, progress.images)

    return draw


@torch.no_grad()
def write_grids(recipe: Recipe, images: int, logs: Path, evaluating: Evaluating, first: bool = True) -> list[Path]:
    """Write the two grids of `draw_grids` after so many images, and return their paths."""
    written = []
    for weights in ("ema", "raw"):
        try:
            with evaluating(weights == "ema"):
                pixels = recipe.preview()
            if pixels is not None and first:
                path = logs / "grids" / f"{images:09d}-{weights}.png"
                save_png(path, contact_sheet(np.asarray(pixels), recipe.columns))
                written.append(path)
        except (RuntimeError, OSError, DarkroomError) as error:
            print(f"no grid at image {images:,}: {error}")
    return written


def draw_strip(drawn: Strip, recipe: Recipe, evaluating: Evaluating, first: bool) -> Callback:
    """Return a callback that draws the recipe's strip at each doubling of the images seen; see `strip.py`."""

    def draw(progress: Progress) -> None:
        if strip.is_due(progress.before, progress.images, progress.end):
            strip.draw(drawn, recipe, progress.images, evaluating, first)

    return draw
