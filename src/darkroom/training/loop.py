"""The training loop: the same for every model.

The state of a training is a function of (seed, images seen). Order, noise and times come from `darkroom.rng` by
position, the learning rate from the images seen, and torch's global generator, which dropout draws from, is seeded
anew for each optimizer step. So a training that was killed and resumed computes what an undisturbed one computes.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial

import torch

from darkroom.errors import DarkroomError
from darkroom.params.run import Run
from darkroom.params.training import Training
from darkroom.processes.stopping import Interrupt, interruptible
from darkroom.training import checkpoint, guards, stable, strip
from darkroom.training.curves import write_curves
from darkroom.training.evaluation import is_due, preview, record, write_histograms
from darkroom.training.finite import NotFiniteError
from darkroom.training.journal import Journal
from darkroom.training.plateau import TITLES
from darkroom.training.recipe import Recipe
from darkroom.training.saver import Saver
from darkroom.training.state import running_parameters
from darkroom.training.trackers import (
    log_histogram,
    log_images,
    log_model,
    log_parameters,
    log_record,
    start_trackers,
    stop_trackers,
)
from darkroom.training.trainer import Places, Trainer

Loop = Callable[[Recipe, Training, Run, Places], Trainer]


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed torch's global generator inside the block, in which a model draws its initial weights."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


def train(recipe: Recipe, settings: Training, run: Run, places: Places) -> Trainer:
    """Train `recipe` as `_train` does, or as what `replaced_by` names."""
    return _loop.get()(recipe, settings, run, places)


@contextmanager
def replaced_by(loop: Loop) -> Iterator[None]:
    """Let another loop train inside the block: `darkroom plan` takes a few optimizer steps and counts them."""
    before = _loop.set(loop)
    try:
        yield
    finally:
        _loop.reset(before)


def _train(recipe: Recipe, settings: Training, run: Run, places: Places) -> Trainer:
    """Train `recipe` to its last image, from the newest checkpoint where there is one, and return the trainer.

    With several processes, only the first returns; the others end here, since one writes the outputs.

    Raises:
        DarkroomError: nothing to train or to validate on, a loss that is not finite, out of memory, a full disk.
        SystemExit: 143 or 130 after SIGTERM or Ctrl-C, with a checkpoint written.
    """
    _require_images(recipe, settings)
    with interruptible() as interrupt:
        trainer = Trainer(recipe, settings, run, places)
        accelerator, journal = trainer.processes.accelerator, None
        folder, stage, work = places.logs.parent / "trackers", places.logs.name, trainer.work
        start_trackers(accelerator, run.trackers, folder, stage, work, trainer.images)
        log_parameters(accelerator, running_parameters(places.state))
        if trainer.processes.first:
            if recipe.whole_batch and run.micro_batch:
                print("`run.micro_batch` is not used here: a loss is of the batch as a whole.")
            journal = Journal(places.logs / "train.jsonl", trainer.images, trainer.settings.images, trainer.records)
        saver = _saver(trainer)
        try:
            _run_steps(trainer, journal, interrupt, saver)
            if run.track_model and trainer.processes.first:
                log_model(accelerator, stage, checkpoint.averaged_file(checkpoint.folders(places.state)[-1]))
        except NotFiniteError as error:
            saver.finish()
            raise DarkroomError(f"{error} {guards.last_good(places.state, checkpoint.folders(places.state))}") from None
        except Exception:
            saver.finish()  # what was being saved when it went wrong is good
            raise
        finally:
            if journal is not None:
                journal.close()
            stop_trackers(accelerator)
        saver.close()
        trainer.finish()
        trainer.processes.collect(None)
        if not trainer.processes.first:
            raise SystemExit(0)
        write_curves(places.curves, trainer.records, also=partial(strip.write, trainer=trainer))
    return trainer


def _run_steps(trainer: Trainer, journal: Journal | None, interrupt: Interrupt, saver: Saver) -> None:
    """Take the optimizer steps that remain; log, draw, save and stop between them where each is due."""
    run, first = trainer.run, trainer.processes.first
    saved = trainer.images
    for batch in trainer.batches():
        trainer.step(batch)
        if journal is not None:
            journal.step(trainer.images)
        if is_due(trainer):
            entry = record(trainer)
            if journal is not None:
                journal.add(entry)
            if trainer.decide(entry):
                _say_decided(trainer, journal)
            log_record(trainer.processes.accelerator, entry)
            if first and any(name.startswith("eval/") for name in entry):
                write_histograms(trainer)
                for name, counts in trainer.recipe.histograms.items():
                    log_histogram(trainer.processes.accelerator, f"eval/{name}", counts, trainer.images)
        drawn = run.grid_every and (trainer.due(run.grid_every) or trainer.images == trainer.settings.images)
        if drawn and (first or trainer.processes.sharded):
            for path in preview(trainer):
                log_images(trainer.processes.accelerator, f"grid/{path.stem.partition('-')[2]}", path, trainer.images)
        if strip.is_due(trainer.images - trainer.settings.batch, trainer.images, trainer.settings.images) and (
            first or trainer.processes.sharded
        ):
            strip.draw(trainer)
        stable.leave(trainer)  # with what the strip holds
        # The first process watches the clock, and any may have had the signal.
        stop, save = trainer.processes.agree(interrupt.signal or 0, int(first and saver.due()))
        if stop or save:
            groups, metadata = trainer.state()
            if first:
                saver.save(trainer.images, groups, metadata, wait=bool(stop))
            saved = trainer.images
        if stop:
            if first:
                saver.close()
                folder = checkpoint.folders(trainer.places.state)[-1]
                print(f"stopped at image {trainer.images:,}; {folder} is kept: the same command continues from it.")
            trainer.processes.collect(None)  # torchrun ends the others soon after the first has gone
            raise SystemExit(128 + stop)
        if trainer.images == trainer.settings.images:
            break  # nearer than it was when the batches were laid out, where the training decided so
    if saved != trainer.images:
        groups, metadata = trainer.state()
        if first:
            saver.save(trainer.images, groups, metadata, wait=True)
    saver.finish(raises=True)


def _say_decided(trainer: Trainer, journal: Journal | None) -> None:
    """Say where a training that has levelled off will end, and count from there."""
    if journal is None:
        return
    settings = trainer.settings
    journal.ends_at(settings.images)
    print(
        f"{TITLES[trainer.recipe.judge]} has levelled off, to less than {settings.min_improvement:.2g} for twice the "
        f"images: the learning rate falls from image {trainer.images:,}, and the training ends at {settings.images:,}."
    )


def _require_images(recipe: Recipe, settings: Training) -> None:
    if not len(recipe.train):
        raise DarkroomError("there are no training images: look at `ingest.splits` and `parts` in params.yaml.")
    if settings.min_improvement is not None and recipe.judge.startswith("val/") and not len(recipe.val):
        raise DarkroomError(
            "`min_improvement` is decided on the validation images, and there are none: give `ingest.splits.val` a "
            "fraction, or set it to null."
        )
    if settings.select == "best" and not len(recipe.val):
        raise DarkroomError(
            "`select: best` is decided on the validation images, and there are none: give `ingest.splits.val` a "
            "fraction, or take `select: last`."
        )


def _saver(trainer: Trainer) -> Saver:
    """Return the writer of checkpoints, after checking that they fit on the disk."""
    size = trainer.checkpoint_bytes
    kept = checkpoint.folders(trainer.places.state)
    there = sum(file.stat().st_size for folder in kept for file in folder.iterdir())
    keep = trainer.run.keep
    if trainer.processes.first:
        trainer.places.state.mkdir(parents=True, exist_ok=True)
        # One more than are kept while one is written; the outputs, averaged weights and raw ones; snapshots twice.
        profiles = trainer.settings.ema_profiles
        sets = len(profiles) * trainer.settings.ema_snapshots + 2 * len(trainer.settings.kept_images)
        snapshots = 2 * sets * trainer.weight_bytes
        more = int(stable.lengthless(trainer.recipe, trainer.settings))  # where the decay begins
        needed = (keep + 1 + more) * size + 2 * trainer.weight_bytes + snapshots - there
        guards.require_disk(trainer.places.state, needed, f"a training that keeps {keep} checkpoints")
    target = trainer.place(trainer.run.checkpoints_to if trainer.processes.first else None)
    return Saver(trainer.places.state, trainer.run, size, after=target.push if target else None)


_loop: ContextVar[Loop] = ContextVar("_loop", default=_train)
