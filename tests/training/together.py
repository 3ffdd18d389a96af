"""A training of Toy as one of several processes.

Shards are torch's own FSDP 2: accelerate gives it to GPUs only, so its wrapping of modules is not tried here.
"""

import contextlib
import json
import os
import signal
import sys
from pathlib import Path

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from darkroom.training.loop import seeded, train
from darkroom.training.processes import Processes
from helpers import run, training
from training.toy import Toy, places, weights

WIDTH = 40


class Without(Toy):
    """No dropout, whose draws follow from the shape of a pass, and a spy on positions and on the data they meet."""

    def __init__(self, stop_at: int | None, width: int) -> None:
        super().__init__()
        with seeded(width):  # wide enough that DDP has an order of gradients to choose
            layers = nn.Linear(2, width), nn.Linear(width, width), nn.LayerNorm(width), nn.Linear(width, 1)
        self.modules["first"] = nn.Sequential(*layers)
        self.met: dict[int, list[float]] = {}
        self.stop_at = stop_at

    def one(self, batch):
        for position, row in zip(batch.positions.tolist(), batch.data["x"].tolist(), strict=True):
            self.met[position] = row
        if self.stop_at is not None and self.stop_at in batch.positions:
            os.kill(os.getpid(), signal.SIGTERM)
        return super().one(batch)


def shard(processes: Processes, module: nn.Module, optimizer: torch.optim.Optimizer) -> nn.Module:
    """Shard a module over the CPUs, as accelerate's FSDP 2 does over GPUs: it refuses CPUs, torch does not."""
    names = {parameter: name for name, parameter in module.named_parameters()}
    mesh = init_device_mesh("cpu", (processes.count,))
    for child in module.children():  # as accelerate wraps blocks: each pass gathers them anew
        for part in child if isinstance(child, nn.ModuleList) else [child]:
            fully_shard(part, mesh=mesh, reshard_after_forward=True)
    fully_shard(module, mesh=mesh)
    sharded = dict(module.named_parameters())
    for group in optimizer.param_groups:
        group["params"] = [sharded[names[parameter]] for parameter in group["params"]]
    return module


def shard_everything() -> None:
    """Make every training of this process a sharded one."""
    begin = Processes.__init__

    def sharded(self: Processes, *arguments: object) -> None:
        begin(self, *arguments)
        self.sharded = True

    Processes.__init__ = sharded
    Processes.prepare = shard
    Processes.apart = lambda self, modules: contextlib.nullcontext()


def member(folder: Path, rank: int, count: int, batch: int, stop_at: int | None, sharded: bool, optimizer: str) -> None:
    """Train as process `rank` of `count`; write what it met and, as the first, weights and records."""
    if sharded:
        shard_everything()
    recipe = Without(stop_at, WIDTH)
    try:
        length = {"images": 8 * batch, "batch": batch, "log_every": 2 * batch}
        settings = training(processes=count, optimizer=optimizer, **length)
        trainer = train(recipe, settings, run(max_lost_seconds=1e9), places(folder))
    finally:
        (folder / f"met-{rank}.json").write_text(json.dumps(recipe.met))
        held = {name: module.state_dict() for name, module in recipe.modules.items()}
        torch.save(held, folder / f"weights-{rank}.pt")
    values = {name: value.hex() for name, value in weights(trainer).items()}
    (folder / "result.json").write_text(json.dumps({"records": trainer.records, "weights": values}))
    sys.stdout.flush()
