"""An update of a training, bare: forward, backward, clipping, optimizer, averages, as the loop takes it.

No loader, no log, no checkpoint: `darkroom plan` adds those by their own measure.
"""

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.utils.flop_counter import FlopCounterMode

from darkroom.planning.live import LiveTensors
from darkroom.planning.timing import Clock, seconds_of, synchronise
from darkroom.schemas.run import Run
from darkroom.schemas.training import Training
from darkroom.training.optimizer import build_optimizer, parameter_groups, state_bytes
from darkroom.training.precision import autocast, checkpoint_activations, lay_out, loss_scaler
from darkroom.training.recipe import Batch, Recipe, Rows


def batch_of(rows: Rows, images: int, device: torch.device, position: int = 0) -> Batch:
    """Return the first `images` rows as a batch on a device, which stands at a position of the training."""
    data = rows.__getitems__(range(images))
    return Batch(
        np.arange(position, position + images),
        {name: torch.as_tensor(value).to(device) for name, value in data.items()},
    )


class Step:
    """A recipe with its optimizers and averages, on a device, ready for updates.

    memory: bytes of one process by what holds them: weights, gradients, optimizer, averages, and the exchange of
        gradients between several processes.
    """

    def __init__(self, recipe: Recipe, settings: Training, run: Run, device: torch.device) -> None:
        self.recipe, self.settings, self.device = recipe, settings, device
        self.images = settings.batch // settings.processes  # of this process, in an update
        self.micro = min(run.micro_batch or self.images, self.images)
        # The first update in which all phases take their turn, but not the very first, in which codebooks begin.
        begins = max(phase.start for phase in recipe.phases)
        self.position = settings.batch * max(1, -(-begins // settings.batch))
        self.modules: list[nn.Module] = list(recipe.modules.values())
        if run.activation_checkpointing:
            checkpoint_activations(recipe.blocks)
        for module in self.modules:
            module.to(device).train()
            lay_out(module, settings.model_copy(update={"compile": False}))
        self.trained = {
            phase.module: [p for p in recipe.modules[phase.module].parameters() if p.requires_grad]
            for phase in recipe.phases
        }
        self.optimizers: dict[str, torch.optim.Optimizer] = {}
        for name in self.trained if device.type != "meta" else ():
            self.optimizers[name] = build_optimizer(recipe.modules[name], settings, name)
            for group in self.optimizers[name].param_groups:
                group["lr"] = 0.0  # the same operations, and weights that no noise can drive to infinity
        # With `ema_decay` 0 the loop keeps a copy all the same; `best` keeps the averages of the best validation.
        kinds = 1 + len(settings.ema_profiles) + (settings.select == "best")
        self.averages = [
            [p.detach().clone() for module in self.modules for p in module.parameters()] for _ in range(kinds)
        ]
        self.scaler = loss_scaler(settings, device)
        self.memory = self._memory(kinds)

    def _memory(self, averages: int) -> dict[str, int]:
        weights = sum(tensor.nbytes for module in self.modules for tensor in (*module.parameters(), *module.buffers()))
        gradients = sum(p.nbytes for parameters in self.trained.values() for p in parameters)
        shared = {"exchange": gradients} if self.settings.processes > 1 else {}
        return {
            "weights": weights,
            "gradients": gradients,
            "optimizer": sum(
                state_bytes(parameter_groups(self.recipe.modules[name], self.settings, name)) for name in self.trained
            ),
            "averages": averages * weights,
            **shared,
        }

    @property
    def parameters(self) -> int:
        """Number of trained parameters."""
        return sum(p.numel() for parameters in self.trained.values() for p in parameters)

    def compile(self) -> None:
        """Compile the modules where the section asks for it; after `activations`, which looks into them."""
        for module in self.modules:
            lay_out(module, self.settings)

    def _autocast(self) -> AbstractContextManager[None]:
        # `meta` has no autocast: there the CPU's stands in, and changes nothing.
        return autocast(self.settings, torch.device("cpu") if self.device.type == "meta" else self.device)

    def operations(self) -> tuple[int, int]:
        """Return the floating-point operations of one micro-batch, all phases, forward and backward."""
        piece = batch_of(self.recipe.train, self.micro, self.device, self.position)
        forward = backward = 0
        for phase in self.recipe.phases:
            with FlopCounterMode(display=False) as ahead, self._autocast():
                loss = phase.loss(piece)["loss"]
            with FlopCounterMode(display=False) as behind:
                loss.backward()
            forward, backward = forward + ahead.get_total_flops(), backward + behind.get_total_flops()
        self._forget()
        return forward, backward

    def activations(self) -> int:
        """Return the most bytes alive besides `memory`, with the gradients there, as from the second micro-batch on.

        Apart from `operations`: the counter of operations keeps alive what checkpointing would free.
        """
        piece = batch_of(self.recipe.train, self.micro, self.device, self.position)
        peak = 0
        for phase in self.recipe.phases:
            for parameter in self.trained[phase.module]:
                parameter.grad = torch.zeros_like(parameter)
            known = [tensor for module in self.modules for tensor in (*module.parameters(), *module.buffers())]
            known += [p.grad for p in self.trained[phase.module] if p.grad is not None]
            with LiveTensors([*known, *piece.data.values()]) as live:
                with self._autocast():
                    loss = phase.loss(piece)["loss"]
                loss.backward()
                del loss
            peak = max(peak, live.peak)
        self._forget()
        return peak + sum(value.nbytes for value in piece.data.values()) * self.images // self.micro

    def _forget(self) -> None:
        for module in self.modules:
            module.zero_grad(set_to_none=True)

    def update(self, batch: Batch) -> None:
        """Take one update, as the loop does."""
        limit = float("inf") if self.settings.clip_norm is None else self.settings.clip_norm
        for phase in self.recipe.phases:
            for each in self.optimizers.values():
                each.zero_grad(set_to_none=True)
            for piece in batch.split(self.micro):
                with self._autocast():
                    found = phase.loss(piece)
                self.scaler.scale(found["loss"] * (len(piece) / len(batch))).backward()
            optimizer = self.optimizers[phase.module]
            self.scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(self.trained[phase.module], limit)
            self.scaler.step(optimizer)
            if phase.after is not None:
                phase.after(batch)
        self.scaler.update()
        weights = [p.detach() for module in self.modules for p in module.parameters()]
        for averages in self.averages:
            torch._foreach_lerp_(averages, weights, 0.01)

    def seconds(self, budget: float, clock: Clock) -> float:
        """Return the seconds of an update."""
        batch = batch_of(self.recipe.train, self.images, self.device, self.position)
        self.update(batch)  # allocates the optimizer's state, and compiles

        def update() -> None:
            batch.positions += self.settings.batch  # what an update does may follow from its place
            self.update(batch)

        return seconds_of(update, self.device, budget, clock)

    @torch.no_grad()
    def validation_seconds(self, budget: float, clock: Clock) -> float:
        """Return the seconds of validating one image."""
        batch = batch_of(self.recipe.val, self.micro, self.device)
        with self._evaluating(), self._autocast():
            each = seconds_of(lambda: self.recipe.validate(batch), self.device, budget, clock)
        return each / len(batch)

    @torch.no_grad()
    def preview_seconds(self, patience: float, clock: Clock) -> float | None:
        """Return the seconds of one grid of pictures, from a single one; None where it takes longer than `patience`."""
        read = clock if self.device.type == "cpu" else time.perf_counter
        began = read()

        def stop(*_: Any) -> None:
            if read() - began > patience:
                raise TimeoutError

        hook = register_module_forward_pre_hook(stop)
        try:
            with self._evaluating():
                self.recipe.preview()
                synchronise(self.device)
        except TimeoutError:
            return None
        finally:
            hook.remove()
        return read() - began

    @contextmanager
    def _evaluating(self) -> Iterator[None]:
        for module in self.modules:
            module.eval()
        try:
            yield
        finally:
            for module in self.modules:
                module.train()
