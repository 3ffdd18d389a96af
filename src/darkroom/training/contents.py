"""What a checkpoint holds: all that a training is, as tensors by name and JSON values."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from darkroom.errors import DarkroomError
from darkroom.training import checkpoint
from darkroom.training.checkpoint import Tensors, under
from darkroom.training.processes import put, whole

if TYPE_CHECKING:
    from darkroom.training.trainer import Trainer


@dataclass(frozen=True)
class Best:
    """The lowest validation loss so far, and when it was."""

    images: int
    loss: float


def contents(trainer: Trainer) -> tuple[dict[str, Tensors], dict[str, Any]]:
    """Return weights, averages and optimizers by name, and the values beside them. Every process must ask."""
    groups = {
        "modules": _flat({name: module.state_dict() for name, module in trainer.modules.items()}),
        "ema": _flat(trainer.ema.state),
        "optimizers": _flat(
            {
                name: checkpoint.optimizer_tensors(optimizer, trainer.names[name])
                for name, optimizer in trainer.optimizers.items()
            }
        ),
    }
    groups |= {f"profile-{width!r}": _flat(average.state) for width, average in trainer.profiles.items()}
    if trainer.best_state is not None:
        groups["best"] = _flat(trainer.best_state)
    facts = {
        "records": trainer.records,
        "windows": trainer.processes.collect(trainer.window.state()),
        "scalers": {name: scaler.state_dict() for name, scaler in trainer.scalers.items()},
        "skipped": trainer.finite.skipped,
        "best": None if trainer.best is None else [trainer.best.images, trainer.best.loss],
        "code": trainer.code,
        "code_changed_at": trainer.code_changed_at,
    }
    return groups, json.loads(json.dumps(facts))  # a copy: the records go on growing


def restore(trainer: Trainer, groups: Mapping[str, Tensors], facts: Mapping[str, Any]) -> None:
    """Give a training what `contents` returned.

    Raises:
        DarkroomError: it is of another model; names what differs.
    """
    with torch.no_grad():
        for name, module in trainer.modules.items():
            _fill(module.state_dict(), under(name, groups["modules"]))
            _fill(trainer.ema.state[name], under(name, groups["ema"]))
            for width, average in trainer.profiles.items():
                _fill(average.state[name], under(name, groups[f"profile-{width!r}"]))
        for name, optimizer in trainer.optimizers.items():
            checkpoint.load_optimizer(optimizer, trainer.names[name], under(name, groups["optimizers"]))
        if "best" in groups:
            trainer.best_state = trainer.ema.copy()
            for name, tensors in trainer.best_state.items():
                _fill(tensors, under(name, groups["best"]))
    for name, scaler in trainer.scalers.items():
        if facts["scalers"][name]:
            scaler.load_state_dict(facts["scalers"][name])
    trainer.records, trainer.finite.skipped = facts["records"], facts["skipped"]
    trainer.code_changed_at = list(facts.get("code_changed_at", []))
    trainer.best = None if facts["best"] is None else Best(*facts["best"])
    trainer.window.load(facts["windows"], trainer.processes.rank, trainer.processes.count)


def _flat(states: Mapping[str, Mapping[str, Tensor]]) -> Tensors:
    return {f"{name}/{key}": whole(value) for name, state in states.items() for key, value in state.items()}


def _fill(targets: Mapping[str, Tensor], values: Mapping[str, Tensor]) -> None:
    """Copy tensors into others of the same names.

    Raises:
        DarkroomError: the names differ.
    """
    if targets.keys() != values.keys():
        names = sorted(targets.keys() ^ values.keys())
        raise DarkroomError(f"the checkpoint is of another model; names that differ: {', '.join(names[:8])}.")
    for key, target in targets.items():
        put(target, values[key])
