"""The training loop: the same for every model.

The state of a training is a function of (seed, images seen). Order, noise and times come from `darkroom.rng` by
position, the learning rate from the images seen, and torch's global generator, which dropout draws from, is seeded
again for each optimizer step. So a training that was killed and resumed computes what an undisturbed one computes.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import torch

from darkroom.errors import DarkroomError
from darkroom.params.run import Run
from darkroom.params.training import Training
from darkroom.processes.stopping import interruptible
from darkroom.training import checkpoint, guards, wsd_checkpoint
from darkroom.training.after_step import after_step, write_sample_evolution
from darkroom.training.averages import state_of, write_kept
from darkroom.training.changed_code import work_name
from darkroom.training.curves import write_curves
from darkroom.training.evaluation import is_due, record
from darkroom.training.journal import Journal
from darkroom.training.loader import training_batches
from darkroom.training.precision import NotFiniteError
from darkroom.training.processes import unshard, whole
from darkroom.training.recipe import Batch, Recipe
from darkroom.training.remote import open_place
from darkroom.training.saver import Saver
from darkroom.training.start import OutputPaths, open_training
from darkroom.training.state import PARAMETERS, read_entry
from darkroom.training.trackers import log_model, log_parameters, start_trackers, stop_trackers
from darkroom.training.train_state import TrainState


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed torch's global generator inside the block, where a model draws its initial weights."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


def train(recipe: Recipe, settings: Training, run: Run, places: OutputPaths) -> TrainState:
    """Train `recipe` to its last image, from the newest checkpoint if there is one, and write its curves.

    With several processes, only the first returns, since it writes the outputs; the others exit here.

    Raises:
        DarkroomError: nothing to train or to validate on, a loss that is not finite, out of memory, a full disk.
        SystemExit: 143 or 130 after SIGTERM or Ctrl-C, with a checkpoint written.
    """
    _require_images(recipe, settings)
    with interruptible() as signals:
        state = open_training(recipe, settings, run, places)
        accelerator, first = state.processes.accelerator, state.processes.first
        stage, work = places.logs.name, work_name(places.state, state.code)
        start_trackers(accelerator, run.trackers, places.logs.parent / "trackers", stage, work, state.images)
        log_parameters(accelerator, read_entry(places.state, PARAMETERS))
        if first and recipe.whole_batch and run.micro_batch:
            print("`run.micro_batch` is ignored: a loss needs the whole batch.")
        journal = None
        if first:
            journal = Journal(places.logs / "train.jsonl", state.images, state.settings.images, state.records)
        saver = _saver(state, places, work)
        try:
            _run_steps(state, places, journal, signals, saver)
            if run.track_model and first:
                log_model(accelerator, stage, checkpoint.averaged_file(checkpoint.folders(places.state)[-1]))
        except NotFiniteError as error:
            saver.finish()
            if not (good := checkpoint.folders(places.state)):
                raise DarkroomError(f"{error} There is no checkpoint yet in {places.state}.") from None
            again = "the same command continues from there, so change a setting first"
            raise DarkroomError(f"{error} The last good checkpoint is {good[-1]}: {again}.") from None
        except Exception:
            saver.finish()  # a checkpoint that is being saved is good
            raise
        finally:
            if journal is not None:
                journal.close()
            stop_trackers(accelerator)
        saver.close()
        _unshard(state)
        state.processes.collect(None)
        if not first:
            raise SystemExit(0)
        write = partial(write_sample_evolution, drawn=state.sample_evolution, recipe=recipe)
        write_curves(places.curves, state.records, also=write if state.sample_evolution else None)
    return state


def remaining_batches(state: TrainState) -> Iterator[Batch]:
    """Yield this process's part of the batches that remain."""
    settings, processes = state.settings, state.processes
    return training_batches(
        state.recipe.train,
        settings.seed,
        state.images,
        settings.images,
        settings.batch,
        state.run.workers,
        state.device,
        processes.rank,
        processes.count,
        settings.shuffle,
    )


def _run_steps(
    state: TrainState, places: OutputPaths, journal: Journal | None, signals: list[int], saver: Saver
) -> None:
    """Take the optimizer steps that remain; record, log, save and stop between them where each is due."""
    first, saved = state.processes.first, state.images
    for batch in remaining_batches(state):
        before = state.images
        state.step(batch)
        _keep_weights(state, places)
        entry = record(state, before) if is_due(state, before) else None
        after_step(state, places.logs, journal, before, entry)
        if journal is not None and journal.slower and state.settings.share_cores and torch.get_num_threads() > 1:
            torch.set_num_threads(threads := torch.get_num_threads() // 2)  # one that shares its core delays the others
            print(f"threads from here on: {threads} (`share_cores`). The weights depend on this.", flush=True)
            journal.slower = None  # look again
        wsd_checkpoint.leave(state, places.state)  # includes the sample evolution
        # The first process watches the clock, and any may have received the signal.
        stop, save = state.processes.agree(signals[0] if signals else 0, int(first and saver.due()))
        if stop or save:
            groups, values = state.state_dict()
            if first:
                saver.save(state.images, groups, values, wait=bool(stop))
            saved = state.images
        if stop:
            if first:
                saver.close()
                folder = checkpoint.folders(places.state)[-1]
                print(f"stopped at image {state.images:,}, saved in {folder}. Run the same command to continue.")
            state.processes.collect(None)  # torchrun ends the others soon after the first exits
            raise SystemExit(128 + stop)
    if saved != state.images:
        groups, values = state.state_dict()
        if first:
            saver.save(state.images, groups, values, wait=True)
    saver.finish(raises=True)


def _keep_weights(state: TrainState, places: OutputPaths) -> None:
    """Write the weights of `save_every` that the last optimizer step has reached, before the checkpoint."""
    if state.images not in state.settings.kept_images:
        return
    state.finite.settle(state.images)
    if state.processes.first:
        write_kept(places.state, state.images, {"raw": state_of(state.modules), "averaged": state.ema.state})


def _unshard(state: TrainState) -> None:
    """Put sharded weights together at the end of a training, so that they can be saved as they are."""
    if state.processes.sharded:
        for average in filter(None, (state.ema.state, state.best_state)):
            for tensors in average.values():
                tensors.update({key: whole(value).cpu() for key, value in tensors.items()})
        for module in state.modules.values():
            unshard(module)


def _require_images(recipe: Recipe, settings: Training) -> None:
    if not len(recipe.train):
        raise DarkroomError("there are no training images: check `ingest.splits` and `parts` in params.yaml.")
    if settings.select == "best" and not len(recipe.val):
        raise DarkroomError(
            "`select: best` needs validation images: set `ingest.splits.val` above 0, or use `select: last`."
        )


def _saver(state: TrainState, places: OutputPaths, work: str) -> Saver:
    """Return the writer of checkpoints, after checking that they fit on the disk."""
    settings, run, size = state.settings, state.run, state.checkpoint_bytes
    existing = sum(file.stat().st_size for folder in checkpoint.folders(places.state) for file in folder.iterdir())
    if state.processes.first:
        places.state.mkdir(parents=True, exist_ok=True)
        # One checkpoint more while one is written; sets of averaged and raw weights: the final one, others twice.
        sets = 1 + 2 * len(settings.kept_images)
        more = int(wsd_checkpoint.is_independent_of_length(state.recipe, settings))  # at the start of the decay
        needed = (run.keep + 1 + more) * size + 2 * sets * state.weight_bytes - existing
        guards.require_disk(places.state, needed, f"a training that keeps {run.keep} checkpoints")
    place = open_place(run.checkpoints_to if state.processes.first else None, work, run.keep)
    return Saver(places.state, run, size, after=place.push if place else None)
