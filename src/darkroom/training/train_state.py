"""The state of a training between optimizer steps, and the optimizer step.

Read `TrainState.step` from top to bottom: the batch is cut into micro-batches; in each phase the gradients of the loss
are added up, clipped and checked, and the optimizer moves the weights; then the averages follow.
"""

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from darkroom.params.run import Run
from darkroom.params.training import Training, learning_rate
from darkroom.rng import derive
from darkroom.training import guards
from darkroom.training.averages import Average, State, constant_decay
from darkroom.training.checkpoint import Tensors, fill, under
from darkroom.training.curves import Record
from darkroom.training.loader import row_order
from darkroom.training.optimizer import load_optimizer, optimizer_tensors, parameter_names, state_bytes
from darkroom.training.precision import Finite, autocast, seed_rng, tf32
from darkroom.training.processes import Processes, whole
from darkroom.training.recipe import Batch, Phase, Recipe

Sums = dict[str, tuple[float, int]]  # by name: the sum of the values, and their number


@dataclass(frozen=True)
class Best:
    """The lowest validation loss so far, and the images seen at that time."""

    images: int
    loss: float


class Window:
    """Sums of logged values since the last record, which stay on the device until then."""

    def __init__(self, device: torch.device) -> None:
        # Summed in float64, which MPS does not have.
        self.dtype = torch.float32 if device.type == "mps" else torch.float64
        self._sums: dict[str, Tensor | float] = {}
        self._counts: dict[str, int] = {}

    def add(self, values: Mapping[str, Tensor | float]) -> None:
        """Add the values of one optimizer step, scalars."""
        for name, value in values.items():
            if isinstance(value, Tensor):
                value = value.detach().to(self.dtype)
            self._sums[name] = self._sums.get(name, 0.0) + value
            self._counts[name] = self._counts.get(name, 0) + 1

    def state(self) -> Sums:
        """Return the sums and counts as numbers, which JSON preserves bit for bit."""
        return {name: (float(value), self._counts[name]) for name, value in self._sums.items()}

    def load(self, states: Sequence[Sums], rank: int, count: int) -> None:
        """Load what `state` returned in each process: this process's own, or an equal part if their number changed."""
        if len(states) != count:
            counts = {name: number for state in states for name, (_, number) in state.items()}
            averages = {name: (value * counts[name], counts[name]) for name, value in means(states).items()}
            states = [averages] * count
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


class TrainState:
    """A recipe in training: its modules, their optimizers and averages, and the images seen.

    Args:
        recipe: the losses call its `modules`: with several processes, wrappers around `modules`.
        settings: of the training.
        run: the section `run`.
        processes: those that share the training.
        modules: the averaged and saved modules, on the training device.
        optimizers: by the name of the module whose parameters they update.

    Attributes:
        images: seen so far.
        records: the means and scores logged so far, in order.
        sample_evolution: images drawn so far, by the images seen, uint8 (N, C, H, W).
        best: the best validation so far; with `select: best`, `best_state` has the averages of that moment.
        code: fingerprint of the code that runs; known to the first process, which writes the checkpoints.
        code_changed_at: images seen at each start with changed code.
    """

    def __init__(
        self,
        recipe: Recipe,
        settings: Training,
        run: Run,
        processes: Processes,
        modules: dict[str, nn.Module],
        optimizers: dict[str, torch.optim.Optimizer],
    ) -> None:
        self.recipe, self.settings, self.run, self.processes = recipe, settings, run, processes
        self.device = processes.device
        self.modules, self.optimizers = modules, optimizers
        self.names = {name: parameter_names(modules[name]) for name in optimizers}
        # They keep small gradients of fp16 above zero (Micikevicius et al., 2018, arXiv 1710.03740, section 3.2).
        scaler = partial(torch.amp.GradScaler, self.device.type, enabled=settings.precision == "fp16")
        self.scalers = {phase.module: scaler() for phase in recipe.phases}
        start = -(-settings.ema_start // settings.batch)
        decay = constant_decay(settings.ema_decay, settings.ema_warmup, start, settings.ema_every)
        self.ema = Average(modules, decay)
        self.window = Window(self.device)
        self.finite = Finite(settings, self.device, processes.count, self._keys)
        self.images = 0
        self.records: list[Record] = []
        self.sample_evolution: dict[int, NDArray[np.uint8]] = {}
        self.best: Best | None = None
        self.best_state: State | None = None
        self.code: dict[str, dict[str, str]] = {}
        self.code_changed_at: list[int] = []

    # ------------------------------------------------------------------------------------------------------------
    # The optimizer step

    def step(self, batch: Batch) -> None:
        """Take one optimizer step in each phase of the recipe, and update the average.

        Raises:
            DarkroomError: a loss or gradient that is not finite, out of memory.
        """
        pieces = batch.split(self.pass_size(len(batch)))
        phases = [phase for phase in self.recipe.phases if self.images >= phase.start]
        with self.memory_explained(len(pieces[0])):
            for phase in phases:
                self._step_phase(phase, batch, pieces)
        self.finite.settle(self.images)
        self.ema.update(self.images // self.settings.batch)
        self.images += self.settings.batch

    def _step_phase(self, phase: Phase, batch: Batch, pieces: Sequence[Batch]) -> None:
        """Take the optimizer step of one phase."""
        optimizer, scaler = self.optimizers[phase.module], self.scalers[phase.module]
        set_rates(optimizer, self.settings, self.images, phase.lr_scale)
        losses = self.gradients(phase, batch, pieces)
        limits = (phase.clip_norm, self.settings.clip_norm, float("inf"))
        limit = next(limit for limit in limits if limit is not None)
        norm = torch.nn.utils.clip_grad_norm_(list(self.names[phase.module]), limit)
        norm = whole(norm) if self.processes.sharded else norm
        self.finite.check(self.images, phase.module, losses["loss"], norm, scaler)
        scaler.step(optimizer)
        if phase.after is not None:
            batch.join_outputs(pieces)
            phase.after(batch)
        self.window.add(losses if phase is self.recipe.phases[0] else _renamed(phase.module, losses))
        if not scaler.is_enabled() or norm.isfinite():  # a step that the scaler skipped has no finite norm
            self.window.add({f"grad_norm/{phase.module}": norm})
        scaler.update()

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
                    terms = phase.loss(piece)
                self.scalers[phase.module].scale(terms["loss"] * fraction).backward()
            for name, value in terms.items():
                losses[name] = losses.get(name, 0.0) + fraction * value.detach().to(self.window.dtype)
        return losses

    def pass_size(self, images: int) -> int:
        """Return how many images of a batch go through one forward and backward pass: `run.micro_batch`, or all."""
        return images if self.recipe.whole_batch else min(self.run.micro_batch or images, images)

    @contextmanager
    def memory_explained(self, images: int) -> Iterator[None]:
        """Turn an out-of-memory error in a pass of `images` images into a DarkroomError.

        Raises:
            DarkroomError: the device, or the machine, has no memory left.
        """
        try:
            yield
        except (RuntimeError, MemoryError) as error:
            if not guards.is_out_of_memory(error):
                raise
            whole_batch = self.recipe.whole_batch
            raise guards.out_of_memory(images, self.state_bytes, self.device, self.run, whole_batch) from error

    def _keys(self, images: int) -> list[str]:
        """Return the keys of the images of the optimizer step after `images` images."""
        positions = np.arange(images, images + self.settings.batch)
        settings, rows = self.settings, self.recipe.train
        return rows.keys(row_order(rows, settings.seed, settings.shuffle)(positions).tolist())

    # ------------------------------------------------------------------------------------------------------------
    # Between the steps

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """Use the averaged weights that are written (`select`) inside the block."""
        with self.ema.applied(self.best_state):
            yield

    def keep_best(self, loss: float) -> None:
        """Store the averages if this validation loss is the lowest so far."""
        if math.isfinite(loss) and (self.best is None or loss < self.best.loss):
            self.best = Best(self.images, loss)
            if self.settings.select == "best":
                self.best_state = self.ema.copy()

    def metadata(self) -> dict[str, Any]:
        """Return the manifest entries of the weights that are written.

        The images seen, which averages they are, the best validation, and after which images the code changed.
        """
        best = None if self.best is None else {"images": self.best.images, "loss": self.best.loss}
        changed = {"code_changed_at": self.code_changed_at} if self.code_changed_at else {}
        entries = {"images_seen": self.images, "selected": self.settings.select, "best_validation": best}
        return {**entries, **changed}

    # ------------------------------------------------------------------------------------------------------------
    # What a checkpoint holds

    def state_dict(self) -> tuple[dict[str, Tensors], dict[str, Any]]:
        """Return the full training state: tensors by group and name, and JSON values. Every process must call it.

        Raises:
            NotFiniteError: a loss or gradient of an earlier step was not finite, so the state is unusable.
        """
        self.finite.settle(self.images)
        optimizers = {name: optimizer_tensors(each, self.names[name]) for name, each in self.optimizers.items()}
        groups = {
            "modules": _flat({name: module.state_dict() for name, module in self.modules.items()}),
            "ema": _flat(self.ema.state),
            "optimizers": _flat(optimizers),
        }
        if self.best_state is not None:
            groups["best"] = _flat(self.best_state)
        if self.sample_evolution:  # on disk `strip`, as in checkpoints of earlier versions
            groups["strip"] = {f"{at:012d}": torch.from_numpy(drawn) for at, drawn in self.sample_evolution.items()}
        values = {
            "records": self.records,
            "windows": self.processes.collect(self.window.state()),
            "scalers": {name: scaler.state_dict() for name, scaler in self.scalers.items()},
            "best": None if self.best is None else [self.best.images, self.best.loss],
            "code": self.code,
            "code_changed_at": self.code_changed_at,
        }
        return groups, json.loads(json.dumps(values))  # a copy: `records` grows

    def load_state_dict(self, images: int, groups: Mapping[str, Tensors], values: Mapping[str, Any]) -> None:
        """Load what `state_dict` returned after `images` images.

        Raises:
            DarkroomError: it belongs to another model; names the differences.
        """
        with torch.no_grad():
            for name, module in self.modules.items():
                fill(module.state_dict(), under(name, groups["modules"]))
                fill(self.ema.state[name], under(name, groups["ema"]))
            for name, optimizer in self.optimizers.items():
                load_optimizer(optimizer, self.names[name], under(name, groups["optimizers"]))
            if "best" in groups:
                self.best_state = self.ema.copy()
                for name, tensors in self.best_state.items():
                    fill(tensors, under(name, groups["best"]))
        for name, scaler in self.scalers.items():
            if values["scalers"][name]:
                scaler.load_state_dict(values["scalers"][name])
        self.images = images
        self.sample_evolution = {int(at): drawn.numpy() for at, drawn in groups.get("strip", {}).items()}
        self.records = values["records"]
        self.code_changed_at = list(values.get("code_changed_at", []))
        self.best = None if values["best"] is None else Best(*values["best"])
        self.window.load(values["windows"], self.processes.rank, self.processes.count)

    @property
    def weight_bytes(self) -> int:
        """Bytes of the parameters, over all shards."""
        return sum(value.nbytes for module in self.modules.values() for value in module.parameters())

    @property
    def state_bytes(self) -> int:
        """Bytes of weights, gradients, optimizers and averages, on one device if they are not sharded."""
        return self.weight_bytes * (2 + self._averages) + self._optimizer_bytes

    @property
    def checkpoint_bytes(self) -> int:
        """Bytes of a checkpoint: the modules, the optimizers' state, and the averages."""
        modules = sum(value.nbytes for module in self.modules.values() for value in module.state_dict().values())
        return modules * (1 + self._averages) + self._optimizer_bytes

    @property
    def _averages(self) -> int:
        return 1 + (self.settings.select == "best")

    @property
    def _optimizer_bytes(self) -> int:
        return sum(state_bytes(optimizer.param_groups) for optimizer in self.optimizers.values())


def _flat(states: Mapping[str, Mapping[str, Tensor]]) -> Tensors:
    return {f"{name}/{key}": whole(value) for name, state in states.items() for key, value in state.items()}


def _renamed(module: str, losses: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the losses of a later phase under names of their own: the curve `loss` is the first phase's."""
    return {f"loss_{module}" if name == "loss" else name: value for name, value in losses.items()}


def set_rates(optimizer: torch.optim.Optimizer, settings: Training, images: int, lr_scale: float = 1.0) -> None:
    """Give each group of an optimizer of `build_optimizer` its learning rate for the step after `images` images."""
    for group in optimizer.param_groups:
        group["lr"] = learning_rate(settings, images) * lr_scale
