"""One optimizer step, from a batch to the averages; and what a training is between two steps.

Read `Trainer.step` from top to bottom: the batch is cut into micro-batches; in each phase the gradients of the loss are
added up, clipped and checked, and the optimizer moves the weights; then the averages follow.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from darkroom.dag.fingerprint.stages import Fingerprint
from darkroom.errors import DarkroomError
from darkroom.params.run import Run
from darkroom.params.training import Training
from darkroom.rng import derive
from darkroom.training import checkpoint, guards, stable
from darkroom.training.averages import (
    Average,
    State,
    constant_decay,
    power_decay,
    snapshot_due,
    state_of,
    write_snapshot,
)
from darkroom.training.changed_code import choose_checkpoint, work_name
from darkroom.training.checkpoint import Best, Tensors
from darkroom.training.evaluation import Record, Window
from darkroom.training.finite import Finite
from darkroom.training.initial import initialise
from darkroom.training.kept import kept_folder, read_kept, write_kept
from darkroom.training.loader import rows_at, training_batches
from darkroom.training.muon import Muon
from darkroom.training.optimizer import build_optimizer, check_groups, parameter_names, set_rates, state_bytes
from darkroom.training.plateau import first_decision, judged_points, levelled_off
from darkroom.training.precision import (
    autocast,
    checkpoint_activations,
    loss_scaler,
    seed_rng,
    set_memory_format,
    tf32,
)
from darkroom.training.processes import Processes, unshard, whole
from darkroom.training.recipe import Batch, Phase, Recipe
from darkroom.training.remote.open import open_place
from darkroom.training.remote.place import Place
from darkroom.training.state import running_code


@dataclass(frozen=True)
class Places:
    """Where a training writes: its state, its curves (a declared output), and its logs (not declared)."""

    state: Path
    curves: Path
    logs: Path


class Trainer:
    """A recipe in training: its modules, their optimizers and averages, and the images seen.

    `modules` are the modules themselves, which are averaged and saved; `recipe.modules` what the losses call, which
    with several processes are wrappers around them.
    """

    images: int  # seen so far
    settings: Training  # `images` is the end, which moves where `min_improvement` decides
    decay_begins: int | None  # images seen when it was decided
    finite: Finite

    # ------------------------------------------------------------------------------------------------------------
    # The optimizer step

    def step(self, batch: Batch) -> None:
        """Take one optimizer step in each phase of the recipe, and move the averages.

        Args:
            batch: this process's part of the images of the step.

        Raises:
            DarkroomError: a loss or gradient that is not finite, where `non_finite` says stop; out of memory.
        """
        pieces = batch.split(self.pass_size(len(batch)))
        phases = [phase for phase in self.recipe.phases if self.images >= phase.start]
        with self.memory_explained(len(pieces[0])):
            taken = [self._step_phase(phase, batch, pieces) for phase in phases]
        self.finite.settle(self.images)
        for average in (self.ema, *self.profiles.values()):
            average.update(self.images // self.settings.batch)
        before, self.images = self.images, self.images + self.settings.batch
        if snapshot_due(before, self.images, self.settings):  # before the checkpoint that counts on it
            self.finite.settle(self.images)
            if self.processes.first:
                write_snapshot(self.places.state, self.images, self.modules, self.profiles)
        if self.images in self._kept:
            self.finite.settle(self.images)
            if self.processes.first:
                weights = {"raw": state_of(self.modules), "averaged": self.ema.state}
                write_kept(self.places.state, self.images, weights)
        self.finite.skipped = 0 if all(taken) else self.finite.skipped + 1

    def _step_phase(self, phase: Phase, batch: Batch, pieces: Sequence[Batch]) -> bool:
        """Take the optimizer step of one phase; return False where it was left out."""
        optimizer, scaler = self.optimizers[phase.module], self.scalers[phase.module]
        set_rates(optimizer, self.settings, self.images, phase.rate)
        losses = self.gradients(phase, batch, pieces)
        limits = (phase.clip_norm, self.settings.clip_norm, float("inf"))
        limit = next(limit for limit in limits if limit is not None)
        norm = whole(torch.nn.utils.clip_grad_norm_(list(self.names[phase.module]), limit))
        taken = self.finite.allows(self.images, phase.module, losses["loss"], norm, scaler)
        if taken:
            scaler.step(optimizer)
            if phase.after is not None:
                batch.join_outputs(pieces)
                phase.after(batch)
            self.window.add(losses if phase is self.recipe.phases[0] else _renamed(phase.module, losses))
            if not scaler.is_enabled() or norm.isfinite():  # an overflow, which the scaler left out, has no norm
                self.window.add({f"grad_norm/{phase.module}": norm})
        if self.settings.non_finite == "skip":
            self.window.add({f"skipped/{phase.module}": float(not taken)})
        scaler.update()
        return taken

    def gradients(self, phase: Phase, batch: Batch, pieces: Sequence[Batch]) -> dict[str, Tensor]:
        """Give the phase's module the gradient of a batch, cut into micro-batches, and return the losses."""
        seed_rng(derive(self.settings.seed, f"update/{phase.module}", int(batch.positions[0])), self.device)
        for each in self.optimizers.values():  # a loss may reach into another phase's module
            each.zero_grad(set_to_none=True)
        with tf32(self.settings):
            losses = self._backward(phase, pieces)
        self.scalers[phase.module].unscale_(self.optimizers[phase.module])
        return losses

    def _backward(self, phase: Phase, pieces: Sequence[Batch]) -> dict[str, Tensor]:
        """Add up the gradients of the loss over micro-batches, weighted by their fraction of the batch."""
        losses: dict[str, Tensor] = {}
        images = sum(len(piece) for piece in pieces)
        for piece in pieces:
            fraction = len(piece) / images
            wrappers = list(self.recipe.modules.values())
            with nullcontext() if piece is pieces[-1] else self.processes.apart(wrappers):
                with autocast(self.settings, self.device):
                    found = phase.loss(piece)
                self.scalers[phase.module].scale(found["loss"] * fraction).backward()
            for name, value in found.items():
                losses[name] = losses.get(name, 0.0) + fraction * value.detach().to(self.window.dtype)
        return losses

    def pass_size(self, images: int) -> int:
        """Return how many images of a batch go through one forward and backward pass: `run.micro_batch`, or all."""
        return images if self.recipe.whole_batch else min(self.run.micro_batch or images, images)

    @contextmanager
    def memory_explained(self, images: int) -> Iterator[None]:
        """Raise a sentence where memory runs out in a pass of some images.

        Raises:
            DarkroomError: the device, or the machine, has no memory left.
        """
        try:
            yield
        except (RuntimeError, MemoryError) as error:
            if not guards.is_out_of_memory(error):
                raise
            raise guards.out_of_memory(
                images, self.state_bytes, self.device, self.run, self.recipe.whole_batch
            ) from error

    def batches(self) -> Iterator[Batch]:
        """Yield this process's part of the batches that remain."""
        return training_batches(
            self.recipe.train,
            self.settings.seed,
            self.images,
            self.settings.images,
            self.settings.batch,
            self.run.workers,
            self.device,
            self.processes.rank,
            self.processes.count,
            self.settings.shuffle,
        )

    def due(self, every: int) -> bool:
        """Return whether the last step went past a multiple of `every` images."""
        return self.images // every > (self.images - self.settings.batch) // every

    # ------------------------------------------------------------------------------------------------------------
    # The start

    def __init__(self, recipe: Recipe, settings: Training, run: Run, places: Places) -> None:
        self.recipe, self.settings, self.run, self.places = recipe, settings, run, places
        self.processes = Processes(settings.processes)
        self.device = self.processes.device
        if run.activation_checkpointing:
            checkpoint_activations(recipe.blocks)
        self.modules: dict[str, nn.Module] = dict(recipe.modules)
        self.code: Fingerprint = {}  # of what runs; known to the first process, which writes the checkpoints
        self.code_changed_at: list[int] = []
        self._changed = False
        self._folder = self._checkpoint()
        if self._folder is None:
            with self.processes.accelerator.main_process_first():  # one downloads, the others find it
                initialise(self.modules, settings.init)
        self.optimizers: dict[str, torch.optim.Optimizer] = {}
        trained = {phase.module for phase in recipe.phases}
        check_groups({name: self.modules[name] for name in sorted(trained)}, settings)
        betas = {phase.module: phase.betas for phase in recipe.phases}
        for name, module in self.modules.items():
            module.to(self.device)
            set_memory_format(module, settings)
            if name in trained:
                self.optimizers[name] = build_optimizer(module, settings, name, betas[name])
                if self.processes.sharded and isinstance(self.optimizers[name], Muon):
                    raise DarkroomError("`optimizer: muon` needs whole matrices, which FSDP shards: take adamw.")
            recipe.modules[name] = self.processes.prepare(module, self.optimizers.get(name))
        self.names = {name: parameter_names(self.modules[name]) for name in trained}
        self.scalers = {phase.module: loss_scaler(settings, self.device) for phase in recipe.phases}
        decay = constant_decay(
            settings.ema_decay, settings.ema_warmup, -(-settings.ema_start // settings.batch), settings.ema_every
        )
        self.ema = recipe.average = Average(self.modules, decay)
        if self.processes.sharded and (settings.ema_profiles or settings.keep_every):
            raise DarkroomError(
                "`ema_profiles` and `keep_every` are written by one process, which FSDP gives a shard: set the former "
                "to [], and leave the latter empty."
            )
        self._kept = frozenset(settings.kept_images)
        self.profiles = {width: Average(self.modules, power_decay(width)) for width in settings.ema_profiles}
        self.window = Window(self.device)
        self.images, self.decay_begins = 0, None
        self.finite = Finite(settings, self.device, self.processes.count, self._keys)
        self.records: list[Record] = []
        self.strip: dict[int, NDArray[np.uint8]] = {}  # by images seen, (N, C, H, W)
        self.best: Best | None = None
        self.best_state: State | None = None  # the averages at the best validation, where they are what is written
        self._resume()

    def _checkpoint(self) -> Path | None:
        """Return the checkpoint to begin with: the newest here, of `run.checkpoints_from`, or of a shorter training."""
        found = None
        if self.processes.first:
            state = self.places.state
            self.code = running_code(state)
            start = choose_checkpoint(state, self.code, self.run.changed_code)
            found, self._changed = start.folder, start.changed
            source = self.place(self.run.checkpoints_from) if found is None else None
            if source and (self.settings.ema_profiles or self.settings.keep_every):
                raise DarkroomError(
                    "`ema_profiles` and `keep_every` leave weights beside the checkpoints, which are not copied "
                    f"elsewhere: copy {state} by hand, or train without `run.checkpoints_from`."
                )
            found = source.fetch(state) if source else found
            found = found or stable.find(state, self.recipe, self.settings, self.code)
        return self.processes.from_first(found)

    def _resume(self) -> None:
        if self._folder is None:
            return
        self.images, groups, metadata = checkpoint.read(self._folder)
        checkpoint.restore(self, groups, metadata)
        self.code_changed_at += [self.images] * self._changed
        if self.decay_begins is None and first_decision(self.settings, self.recipe.judge, self.records) == self.images:
            self.decay_from(self.images)  # a shorter training had no more to decide
        if self.processes.first:
            ours = self._folder.parent == self.places.state
            begins = "resumes" if ours else "a shorter training's learning rate had not fallen yet: begins"
            print(f"{begins} at image {self.images:,} of {self.settings.images:,}")

    def _keys(self, images: int) -> list[str]:
        """Return the keys of the images of the optimizer step after `images` images."""
        positions = np.arange(images, images + self.settings.batch)
        settings, rows = self.settings, self.recipe.train
        return rows.keys(rows_at(rows, settings.seed, positions, settings.shuffle).tolist())

    # ------------------------------------------------------------------------------------------------------------
    # Averages

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """Give the modules the averaged weights that are written (`select`) inside the block."""
        with self.ema.applied(self.best_state):
            yield

    def save(self, folder: Path, save: Callable[[Path], object]) -> None:
        """Write what a training leaves: averaged weights to `folder`, raw ones to `raw/`, and what `keep_every` kept.

        Args:
            folder: of the model.
            save: writes the model, as it is, to a folder.
        """
        save(folder / "raw")
        with self.averaged():
            save(folder)
        self.save_kept(folder, save)

    def save_kept(self, folder: Path, save: Callable[[Path], object]) -> None:
        """Write the weights that `keep_every` kept to `checkpoints/images-N/` in a folder, raw ones in `raw/` there.

        Raises:
            DarkroomError: some are missing or damaged.
        """
        for images in self.settings.kept_images:
            weights, place = read_kept(self.places.state, images), kept_folder(folder, images)
            for name, to in (("raw", place / "raw"), ("averaged", place)):
                with self.ema.applied(weights[name]):
                    save(to)

    def decide(self, entry: Record) -> bool:
        """Let the decay begin now, and return True, where the score in a record has levelled off (`min_improvement`).

        What decides is the records alone, which every process and every checkpoint has.
        """
        judge = self.recipe.judge
        if self.decay_begins is not None or judge not in entry:
            return False
        if not levelled_off(self.settings, judged_points(judge, self.records)):
            return False
        self.decay_from(self.images)
        return True

    def decay_from(self, images: int) -> None:
        """End where a decay that begins after so many images ends."""
        self.decay_begins, self.settings = images, self.settings.decaying_from(images)

    def keep_best(self, loss: float) -> None:
        """Remember the averages if this validation loss is the lowest so far."""
        if math.isfinite(loss) and (self.best is None or loss < self.best.loss):
            self.best = Best(self.images, loss)
            if self.settings.select == "best":
                self.best_state = self.ema.copy()

    def metadata(self) -> dict[str, Any]:
        """Return what a manifest says of the weights that are written.

        Which averages they are, when they were best, when the decay began where that was not known before, and after
        which images the code changed, where it did.
        """
        best = None if self.best is None else {"images": self.best.images, "loss": self.best.loss}
        changed = {"code_changed_at": self.code_changed_at} if self.code_changed_at else {}
        began = {} if self.settings.min_improvement is None else {"decay_began_at": self.settings.decay_start}
        return {"selected": self.settings.select, "best_validation": best, **began, **changed}

    def finish(self) -> None:
        """Put sharded weights together at the end of a training, so that they can be saved as they are."""
        if self.processes.sharded:
            for state in filter(None, (self.ema.state, self.best_state)):
                for tensors in state.values():
                    tensors.update({key: whole(value).cpu() for key, value in tensors.items()})
            for module in self.modules.values():
                unshard(module)

    # ------------------------------------------------------------------------------------------------------------
    # State

    @property
    def state_bytes(self) -> int:
        """Bytes of weights, gradients, optimizers and averages, on one device if they are not sharded."""
        return self.weight_bytes * (2 + self._averages) + self._optimizer_bytes

    @property
    def _averages(self) -> int:
        return 1 + len(self.profiles) + (self.settings.select == "best")

    @property
    def _optimizer_bytes(self) -> int:
        return sum(state_bytes(optimizer.param_groups) for optimizer in self.optimizers.values())

    @property
    def weight_bytes(self) -> int:
        """Bytes of the parameters, of all shards together."""
        return sum(value.nbytes for module in self.modules.values() for value in module.parameters())

    @property
    def checkpoint_bytes(self) -> int:
        """Bytes of a checkpoint: the modules, the optimizers' state, and the averages."""
        modules = sum(value.nbytes for module in self.modules.values() for value in module.state_dict().values())
        return modules * (1 + self._averages) + self._optimizer_bytes

    def state(self) -> tuple[dict[str, Tensors], dict[str, Any]]:
        """Return all that the training is: tensors by name, and JSON values. Every process must call it.

        Raises:
            NotFiniteError: a loss or gradient of an earlier step was not finite: what it left is not kept.
        """
        self.finite.settle(self.images)
        return checkpoint.contents(self)

    @property
    def work(self) -> str:
        """What this training is called elsewhere; known to the first process."""
        return work_name(self.places.state, self.code)

    def place(self, text: str | None) -> Place | None:
        """Return the place of this training's checkpoints that `run.checkpoints_to` or `_from` names."""
        return open_place(text, self.work, self.run.keep)


def _renamed(module: str, losses: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the losses of a later phase under names of their own: the curve `loss` is the first phase's."""
    return {f"loss_{module}" if name == "loss" else name: value for name, value in losses.items()}
