"""A recipe in training: its modules, their averages, their optimizers, and how far they are."""

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from torch import Tensor

from darkroom.errors import DarkroomError
from darkroom.random import derive
from darkroom.schemas.run import Run
from darkroom.schemas.training import Training
from darkroom.training import checkpoint
from darkroom.training.curves import Record
from darkroom.training.ema import EMA
from darkroom.training.loader import training_batches, validation_batches
from darkroom.training.optimizer import adamw, parameter_names
from darkroom.training.recipe import Batch, Phase, Recipe
from darkroom.training.schedules import learning_rate


@dataclass(frozen=True)
class Places:
    """Where a training writes: its state, its curves (a declared output), and its logs (not declared)."""

    state: Path
    curves: Path
    logs: Path


class Trainer:
    """A recipe in training: its modules, their averages, their optimizers, and how far they are."""

    def __init__(self, recipe: Recipe, settings: Training, run: Run, places: Places) -> None:
        self.recipe, self.settings, self.run, self.places = recipe, settings, run, places
        self.accelerator = Accelerator(
            mixed_precision="no" if settings.precision == "fp32" else settings.precision,
            log_with=list(run.trackers) or None,
            project_dir=places.logs.parent / "trackers" if run.trackers else None,
        )
        for name, module in recipe.modules.items():
            recipe.modules[name] = self.accelerator.prepare_model(module)
        self.names = {phase.module: parameter_names(recipe.modules[phase.module]) for phase in recipe.phases}
        self.optimizers = {phase.module: adamw(recipe.modules[phase.module], settings) for phase in recipe.phases}
        self.ema = EMA(recipe.modules, settings.ema_decay)
        # Logged means are summed in float64, which MPS does not have.
        self._sums = torch.float32 if self.accelerator.device.type == "mps" else torch.float64
        self.images = 0
        self.records: list[Record] = []
        self._window: dict[str, float] = {}
        self._resume()

    # ------------------------------------------------------------------------------------------------------------
    # Updates

    def update(self, batch: Batch) -> None:
        """Take one optimizer step in each phase of the recipe, and move the averages."""
        rate = learning_rate(self.settings, self.images)
        for phase in self.recipe.phases:
            torch.manual_seed(derive(self.settings.seed, f"update/{phase.module}", self.images))
            for each in self.optimizers.values():  # a loss may reach into another phase's module
                each.zero_grad(set_to_none=True)
            optimizer = self.optimizers[phase.module]
            for group in optimizer.param_groups:
                group["lr"] = rate
            self._count(self._backward(phase, batch))
            self._count({f"grad_norm/{phase.module}": self._clip(phase)})
            optimizer.step()
        self.ema.update(self.images // self.settings.batch)
        self.images += len(batch)
        self._window["updates"] = self._window.get("updates", 0) + 1

    def _backward(self, phase: Phase, batch: Batch) -> dict[str, float | Tensor]:
        """Add up the gradients of a batch, in pieces of `run.micro_batch` images weighted by their share of it."""
        losses: dict[str, Any] = {}
        for piece in batch.split(self.run.micro_batch or len(batch)):
            share = len(piece) / len(batch)
            with self.accelerator.autocast():
                found = phase.loss(piece)
            self.accelerator.backward(found["loss"] * share)
            for name, value in found.items():
                losses[name] = losses.get(name, 0.0) + share * value.detach().to(self._sums)
        return losses

    def _clip(self, phase: Phase) -> Tensor:
        limit = float("inf") if self.settings.clip_norm is None else self.settings.clip_norm
        return torch.nn.utils.clip_grad_norm_(list(self.names[phase.module]), limit)

    def _count(self, values: dict[str, Any]) -> None:
        for name, value in values.items():
            self._window[name] = self._window.get(name, 0.0) + value

    # ------------------------------------------------------------------------------------------------------------
    # What is told

    def record(self) -> Record:
        """Return the means since the last record, and the validation losses where they are due; start a new window.

        Raises:
            DarkroomError: a loss is not finite.
        """
        updates = self._window.pop("updates")
        means = {f"train/{name}": float(value) / updates for name, value in self._window.items()}
        self._window = {}
        self._require_finite(means)
        record = {
            "images": self.images,
            **means,
            "learning_rate": learning_rate(self.settings, self.images - self.settings.batch),
        }
        if self.due(self.settings.validate_every) or self.images == self.settings.images:
            record |= self.validate()
        record = dict(sorted(record.items()))  # the order in which a checkpoint returns them
        self.records.append(record)
        return record

    def _require_finite(self, values: Mapping[str, float]) -> None:
        if not all(math.isfinite(value) for value in values.values()):
            raise DarkroomError(
                f"the loss is not finite before image {self.images:,}: {dict(values)}. Lower the learning rate or "
                f"clip_norm, or take precision fp32; the last good checkpoint is in {self.places.state}."
            )

    @torch.no_grad()
    def validate(self) -> Record:
        """Return the mean losses of the averaged weights over the validation images: the same noise each time."""
        sums: dict[str, float] = {}
        with self._evaluating():
            for batch in validation_batches(self.recipe.val, self.settings.batch, self.accelerator.device):
                for piece in batch.split(self.run.micro_batch or len(batch)):
                    with self.accelerator.autocast():
                        losses = self.recipe.validate(piece)
                    for name, value in losses.items():
                        sums[name] = sums.get(name, 0.0) + len(piece) * float(value)
        return {f"val/{name}": total / max(1, len(self.recipe.val)) for name, total in sums.items()}

    def preview(self) -> None:
        """Write a grid of images made by the averaged weights to the logs; a failure is told and changes nothing."""
        from darkroom.data.grid import image_grid, save_png

        try:
            with self._evaluating(), torch.no_grad():
                images = self.recipe.preview()
            if images is not None:
                path = self.places.logs / "grids" / f"{self.images:09d}.png"
                save_png(path, image_grid(images, columns=10, scale=2))
        except (RuntimeError, OSError, DarkroomError) as error:
            print(f"no grid at image {self.images:,}: {error}")  # a picture is no reason to lose a training

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """Give the modules their averaged weights inside the block, on the way out of a training."""
        with self.ema.applied():
            yield

    @contextmanager
    def _evaluating(self) -> Iterator[None]:
        with self.ema.applied():
            for module in self.recipe.modules.values():
                module.eval()
            try:
                yield
            finally:
                for module in self.recipe.modules.values():
                    module.train()

    def due(self, every: int) -> bool:
        """Return whether the last update went past a multiple of `every` images."""
        return self.images // every > (self.images - self.settings.batch) // every

    # ------------------------------------------------------------------------------------------------------------
    # State

    def save(self) -> Path:
        """Write a checkpoint of all that the training is.

        Raises:
            DarkroomError: a loss since the last record is not finite; the good checkpoints stay.
        """
        window = {name: float(value) for name, value in self._window.items()}
        self._require_finite(window)
        modules = {name: module.state_dict() for name, module in self.recipe.modules.items()}
        groups = {
            "modules": {f"{name}/{key}": value for name, state in modules.items() for key, value in state.items()},
            "ema": {f"{name}/{key}": value for name, state in self.ema.state.items() for key, value in state.items()},
            "optimizers": {
                f"{name}/{key}": value
                for name, optimizer in self.optimizers.items()
                for key, value in checkpoint.optimizer_tensors(optimizer, self.names[name]).items()
            },
        }
        facts = {"records": self.records, "window": window}
        return checkpoint.save(self.places.state, self.images, groups, facts, self.run.keep)

    def _resume(self) -> None:
        found = checkpoint.load_newest(self.places.state)
        if found is None:
            return
        self.images, groups, facts = found
        self.records, self._window = facts["records"], facts["window"]
        for name, module in self.recipe.modules.items():
            module.load_state_dict(_under(name, groups["modules"]))
            for key, value in _under(name, groups["ema"]).items():
                self.ema.state[name][key].copy_(value)
        for name, optimizer in self.optimizers.items():
            checkpoint.load_optimizer(optimizer, self.names[name], _under(name, groups["optimizers"]))
        print(f"resumes at image {self.images:,} of {self.settings.images:,}")

    def batches(self) -> Iterator[Batch]:
        """Yield the batches that are left."""
        settings = self.settings
        return training_batches(
            self.recipe.train,
            settings.seed,
            self.images,
            settings.images,
            settings.batch,
            self.run.workers,
            self.accelerator.device,
        )


def _under(name: str, tensors: checkpoint.Tensors) -> checkpoint.Tensors:
    return {key.removeprefix(f"{name}/"): value for key, value in tensors.items() if key.startswith(f"{name}/")}
