"""What an update of a training holds in memory and computes: counted, on any device, also on `meta`."""

from contextlib import AbstractContextManager

import numpy as np
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from darkroom.params.run import Run
from darkroom.params.training import Training
from darkroom.tools.plan.live import LiveTensors
from darkroom.training.optimizer import parameter_groups, state_bytes
from darkroom.training.precision import autocast, checkpoint_activations, lay_out
from darkroom.training.recipe import Batch, Recipe, Rows


def batch_of(rows: Rows, images: int, device: torch.device, position: int = 0) -> Batch:
    """Return the first `images` rows as a batch on a device, which stands at a position of the training."""
    data = rows.__getitems__(range(images))
    return Batch(
        np.arange(position, position + images),
        {name: torch.as_tensor(value).to(device) for name, value in data.items()},
    )


class Step:
    """A recipe whose update is counted, on a device.

    memory: bytes of one process by what holds them: weights, gradients, optimizer, averages, and the exchange of
        gradients between several processes.
    """

    def __init__(self, recipe: Recipe, settings: Training, run: Run, device: torch.device) -> None:
        self.recipe, self.settings, self.device = recipe, settings, device
        self.images = settings.batch // settings.processes  # of this process, in an update
        self.micro = self.images if recipe.whole_batch else min(run.micro_batch or self.images, self.images)
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
        # With `ema_decay` 0 the loop keeps a copy all the same; `best` keeps the averages of the best validation.
        kinds = 1 + len(settings.ema_profiles) + (settings.select == "best")
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
