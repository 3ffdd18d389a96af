"""Log, track and draw after an optimizer step, without changing any weight.

The sample evolution shows a training: the same few images, from the same noise, at each doubling of the images seen.
It is a declared output like the curves, so it depends on parameters alone, not on `run.grid_every`; doublings do not
depend on the length of the training. Checkpoints hold the images drawn so far, so a killed training continues it.
"""

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from darkroom.artifacts.atomic import write_bytes, write_json
from darkroom.data.grid import contact_sheet, save_png
from darkroom.errors import DarkroomError
from darkroom.training.curves import Record
from darkroom.training.evaluation import evaluating, passed
from darkroom.training.journal import Journal
from darkroom.training.recipe import Recipe
from darkroom.training.trackers import log_histogram, log_images, log_record
from darkroom.training.train_state import TrainState

FIRST = 1000  # images seen when the first images of the sample evolution are drawn
KEPT = 8  # points of the sample evolution: the last doublings, and the end
_SIDE = 128  # pixels to which larger images are reduced: they lie in every checkpoint


def after_step(state: TrainState, logs: Path, journal: Journal | None, before: int, entry: Record | None) -> None:
    """Log, track and draw what is due; failures of grids, evolutions and histograms are printed, not raised.

    `before` images were seen before the step; `entry` is its record, or None if none was due; histograms and grids
    are written to `logs`. `journal` is None if another process has it.
    """
    processes, images, end = state.processes, state.images, state.settings.images
    if entry is not None:
        if journal is not None:
            journal.add(entry)
        log_record(processes.accelerator, entry)
        if processes.first:
            _write_histograms(state, logs)
    if processes.first or processes.sharded:
        if state.run.grid_every and passed(state.run.grid_every, before, images):
            for path in write_grids(state, logs):
                log_images(processes.accelerator, f"grid/{path.stem.partition('-')[2]}", path, images)
        if sample_evolution_is_due(before, images, end):
            add_to_sample_evolution(state, logs)


def _write_histograms(state: TrainState, logs: Path) -> None:
    """Write the counts of an evaluation to the trackers and to `histograms/IMAGES-NAME.tsv`: value, count."""
    for name, counts in state.recipe.histograms.items():
        lines = ["value\tcount", *(f"{value}\t{count}" for value, count in enumerate(counts.tolist()))]
        path = logs / "histograms" / f"{state.images:09d}-{name}.tsv"
        try:
            write_bytes(path, ("\n".join(lines) + "\n").encode())
        except OSError as error:
            print(f"cannot write the histogram at image {state.images:,}: {error}")
        log_histogram(state.processes.accelerator, f"eval/{name}", counts, state.images)


@torch.no_grad()
def write_grids(state: TrainState, logs: Path) -> list[Path]:
    """Write grids of averaged and raw weights, `grids/IMAGES-ema.png` and `-raw.png`, and return their paths."""
    written = []
    for weights in ("ema", "raw"):
        try:
            with evaluating(state, weights == "ema"):
                pixels = state.recipe.preview()
            if pixels is not None and state.processes.first:
                path = logs / "grids" / f"{state.images:09d}-{weights}.png"
                save_png(path, contact_sheet(np.asarray(pixels), state.recipe.columns))
                written.append(path)
        except (RuntimeError, OSError, DarkroomError) as error:
            print(f"cannot write the grid at image {state.images:,}: {error}")
    return written


def sample_evolution_is_due(before: int, images: int, end: int) -> bool:
    """Return whether a doubling of `FIRST` lies in (before, images], or the training ends at `images`."""
    return images == end or before < _last_doubling(images) <= images


def points_of_sample_evolution(end: int) -> int:
    """Return the number of points in the sample evolution of a training of `end` images."""
    return (end // FIRST).bit_length() + (_last_doubling(end) != end)


def _last_doubling(images: int) -> int:
    """Return the last doubling of `FIRST` up to `images`, or `FIRST` itself before it."""
    return FIRST << max(0, (images // FIRST).bit_length() - 1)


@torch.no_grad()
def add_to_sample_evolution(state: TrainState, logs: Path) -> None:
    """Draw images with the averaged weights, drop the oldest ones, and write the picture to `logs` for `darkroom show`.

    Recipes without images draw none.

    With sharded weights every process must call it; otherwise the first one.
    """
    try:
        with evaluating(state):
            pixels = state.recipe.sample_evolution()
        if pixels is not None and state.processes.first:
            state.sample_evolution[state.images] = reduced(np.asarray(pixels))
            for old in sorted(state.sample_evolution)[:-KEPT]:
                del state.sample_evolution[old]
            path = write_sample_evolution(logs, state.sample_evolution, state.recipe)
            log_images(state.processes.accelerator, path.stem, path, state.images)
    except (RuntimeError, OSError, DarkroomError) as error:
        print(f"cannot draw the sample evolution at image {state.images:,}: {error}")


def reduced(images: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return images (N, C, H, W) reduced by whole factors to at most 128 pixels a side: means, rounded down."""
    factor = -(-max(images.shape[2:]) // _SIDE)
    if factor == 1:
        return images.copy()
    height, width = (side // factor for side in images.shape[2:])
    squares = images[:, :, : height * factor, : width * factor].reshape(
        *images.shape[:2], height, factor, width, factor
    )
    return squares.mean(axis=(3, 5)).astype(np.uint8)


def write_sample_evolution(folder: Path, drawn: dict[int, NDArray[np.uint8]], recipe: Recipe) -> Path:
    """Write a sample evolution, a row for each point below the originals if any, and return the path of the picture."""
    points = sorted(drawn)
    originals = recipe.originals()
    rows = [drawn[images] for images in points]
    rows = rows if originals is None else [reduced(np.asarray(originals)), *rows]
    path = folder / "sample_evolution.png"
    save_png(path, contact_sheet(np.concatenate(rows), len(rows[0])))
    facts = {"images": points, "originals": originals is not None, "by_class": recipe.by_class}
    write_json(folder / "sample_evolution.json", facts | ({"captions": [*recipe.captions]} if recipe.captions else {}))
    return path
