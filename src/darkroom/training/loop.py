"""The training loop: the same for every model.

The state of a training is a function of (seed, images seen). Order, noise and times come from `darkroom.random` by
position, the learning rate from the images seen, and torch's global generator, which dropout draws from, is seeded
anew for each update. So a training that was killed and resumed computes what an undisturbed one computes.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from darkroom.errors import DarkroomError
from darkroom.schemas.run import Run
from darkroom.schemas.training import Training
from darkroom.training.curves import Journal, start_trackers, write_curves
from darkroom.training.interrupt import Interrupt, interruptible
from darkroom.training.recipe import Recipe
from darkroom.training.trainer import Places, Trainer


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed torch's global generator inside the block, in which a model draws its initial weights."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


def train(recipe: Recipe, settings: Training, run: Run, places: Places) -> Trainer:
    """Train `recipe` to its last image, from the newest checkpoint where there is one, and return the trainer.

    Raises:
        DarkroomError: no training images, or a loss that is not finite.
        SystemExit: 143 or 130 after SIGTERM or Ctrl-C, with a checkpoint written.
    """
    if not len(recipe.train):
        raise DarkroomError("there are no training images: look at `ingest.splits` and `parts` in params.yaml.")
    with interruptible() as interrupt:
        trainer = Trainer(recipe, settings, run, places)
        journal = Journal(places.logs / "train.jsonl", trainer.images, settings.images)
        start_trackers(trainer.accelerator, places.logs.name, run.trackers)
        _updates(trainer, journal, interrupt)
        journal.close()
        write_curves(places.curves, trainer.records)
        if run.trackers:
            trainer.accelerator.end_training()
    return trainer


def _updates(trainer: Trainer, journal: Journal, interrupt: Interrupt) -> None:
    settings, run = trainer.settings, trainer.run
    saved_at, saved = time.monotonic(), trainer.images
    for batch in trainer.batches():
        trainer.update(batch)
        last = trainer.images == settings.images
        if last or trainer.due(settings.log_every) or trainer.due(settings.validate_every):
            record = trainer.record()
            journal.add(record)
            trainer.accelerator.log(record, step=trainer.images)
        if run.grid_every and trainer.due(run.grid_every):
            trainer.preview()
        if interrupt.signal is not None:
            folder = trainer.save()
            print(f"stopped at image {trainer.images:,}; {folder} is kept: the same command continues from it.")
            raise SystemExit(128 + interrupt.signal)
        if time.monotonic() - saved_at > run.at_risk:
            trainer.save()
            saved_at, saved = time.monotonic(), trainer.images
    if saved != trainer.images:
        trainer.save()
