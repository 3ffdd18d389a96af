"""A few optimizer steps of a training with some settings: their time, memory, loss and gradient."""

import contextlib
import importlib
import resource
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

import psutil
import torch
from torch import Tensor, nn

from darkroom.check.check import schema
from darkroom.errors import DarkroomError
from darkroom.params.numbers import NO_FILE
from darkroom.params.run import Run
from darkroom.params.section import validate
from darkroom.params.stage import given
from darkroom.params.training import Init, Training
from darkroom.tools.plan.miniature import Miniature, enter, small
from darkroom.tools.plan.rehearsal import endless, first_image
from darkroom.tools.tune.search import KEYS, RUN_KEYS, Changes, Found
from darkroom.training.loop import replaced_by
from darkroom.training.recipe import Batch, Recipe
from darkroom.training.trainer import Places, Trainer

BUDGET = 1.5  # seconds that optimizer steps are repeated for
_WARM = 8  # optimizer steps before losses and gradients are looked at: many networks begin with layers of zeros
_MANY = 64  # optimizer steps at least from which batches are taken
_GENTLE = 0.1  # fraction of the learning rate in these, which has no warm-up
_PROBES = 4  # batches of which losses are compared, and of the first gradients
_CONVOLUTIONS = (nn.Conv2d, nn.ConvTranspose2d)


class _Enough(BaseException):
    """Ends the body of a stage once its training was tried; no error, so nothing in between handles it."""


@dataclass
class Trial:
    """Stands in for the training loop of a stage's body, and keeps what it found.

    changes: to the training's settings and to `run`.
    exact: file with weights, losses and gradient of exact settings, which the first trial writes.
    before: bytes that the process has in memory before.
    """

    changes: Changes
    exact: Path
    before: int
    found: Found | None = None

    def train(self, recipe: Recipe, settings: Training, run: Run, places: Places) -> Trainer:
        """Take the place of `darkroom.training.loop.train`. Raises _Enough."""
        now = {key: getattr(run if key in RUN_KEYS else settings, key) for key in KEYS}
        updates = settings.images // settings.batch
        settings = _here(settings, {key: value for key, value in self.changes.items() if key not in RUN_KEYS})
        run = _alone(run, {key: value for key, value in self.changes.items() if key in RUN_KEYS})
        torch.set_num_threads(settings.threads)
        trainer = Trainer(recipe, settings, run, places)
        steps = endless(trainer, first_image(recipe, settings))
        probes = list(islice(steps, _PROBES))
        first = _step_seconds(trainer, steps)
        if not self.exact.exists():
            self._write_exact(trainer, steps, probes)
        exact = torch.load(self.exact, weights_only=True)
        for name, module in trainer.modules.items():
            module.load_state_dict(exact["weights"][name])
        losses, gradient = _probed(trainer, probes)
        seconds = _timed(trainer, steps)
        self.found = Found(
            updates=updates,
            batch=settings.batch,
            seconds=seconds,
            first=max(0.0, first - seconds),
            memory=_memory() - self.before * (not torch.cuda.is_available()),
            loss=float((losses - exact["losses"]).mean().abs() / exact["losses"].mean().abs()),
            gradient=_apart(gradient, exact["gradient"]),
            loss_noise=exact["loss_noise"],
            gradient_noise=exact["gradient_noise"],
            convolutions=any(isinstance(each, _CONVOLUTIONS) for m in trainer.modules.values() for each in m.modules()),
            checkpoints=bool(recipe.blocks),
            cuts=not recipe.whole_batch,
            now=now,
        )
        raise _Enough

    def _write_exact(self, trainer: Trainer, steps: Iterator[Batch], probes: Sequence[Batch]) -> None:
        """Train a little, and keep the weights and what they make of the probes."""
        for _ in range(_WARM - 1):
            trainer.step(next(steps))
        weights = {name: module.state_dict() for name, module in trainer.modules.items()}
        losses, gradient = _probed(trainer, probes)
        _, other = _probed(trainer, probes[1:2])
        spread = float(losses.std() / losses.mean().abs())
        noise = _apart(other, gradient) / 2**0.5
        kept = {"weights": weights, "losses": losses, "gradient": gradient}
        torch.save(kept | {"loss_noise": spread, "gradient_noise": noise}, self.exact)


def attempt(name: str, on: Miniature, changes: Changes, exact: Path) -> Found:
    """Run the body of a training stage, or of one of its items (STAGE@ITEM), up to its training, and try that.

    Args:
        name: of the stage.
        on: where it runs; what it reads is there.
        changes: to its settings.
        exact: see `Trial`.
    """
    stage, _, item = name.partition("@")
    enter(on.folder, download=False)
    trial = Trial(changes, exact, psutil.Process().memory_info().rss)
    with (
        (on.folder / "logs" / f"tune-{name}.log").open("a") as said,
        contextlib.redirect_stdout(said),
        contextlib.redirect_stderr(said),
    ):
        try:
            params = small(validate(schema(stage), given(stage, item or None)), on.parts, on.scale)
            body = importlib.import_module(f"darkroom.stages.{stage}").run
            with replaced_by(trial.train):
                body(params, item) if item else body(params)
        except _Enough:
            pass
        except Exception as error:
            what = str(error) if isinstance(error, DarkroomError) else f"{type(error).__name__}: {error}"
            return Found(why=what)
    return trial.found or Found(why="with these parameters nothing is trained")


def _here(settings: Training, changes: dict[str, Any]) -> Training:
    """Return the settings of one process, which takes its part of each batch, from random weights."""
    batch = settings.batch // settings.processes
    return settings.model_copy(
        update={
            "processes": 1,
            "batch": batch,
            "images": max(settings.images // settings.batch, _MANY) * batch,
            "learning_rate": _GENTLE * settings.learning_rate,
            "schedule": "constant",
            "groups": [group.model_copy(update={"schedule": None}) for group in settings.groups],
            "warmup": 0,
            "min_improvement": None,
            "init": Init(folder=NO_FILE, url=None, sha256=None, skip=[]),
            **changes,
        }
    )


def _alone(run: Run, changes: dict[str, Any]) -> Run:
    """Return how a training runs that talks to nobody."""
    elsewhere: dict[str, Any] = {"accelerate": None, "checkpoints_from": None, "checkpoints_to": None, "trackers": []}
    return run.model_copy(update={**elsewhere, **changes})


def _probed(trainer: Trainer, probes: Sequence[Batch]) -> tuple[Tensor, Tensor]:
    """Return the losses of batches in all phases, (probes, phases), and the gradient of the first, flat, on the CPU."""
    losses, gradient = [], []
    for batch in probes:
        pieces = batch.split(trainer.pass_size(len(batch)))
        for phase in trainer.recipe.phases:
            losses.append(trainer.gradients(phase, batch, pieces)["loss"].detach().float().cpu())
            trainer.scalers[phase.module].update()
            batch.join_outputs(pieces)
            if batch is probes[0]:
                found = (p.grad for p in trainer.names[phase.module] if p.grad is not None)
                gradient += [each.detach().float().flatten().cpu() for each in found]
    return torch.stack(losses).reshape(len(probes), -1), torch.cat(gradient)


def _apart(one: Tensor, other: Tensor) -> float:
    """Return the norm of the difference of two vectors, relative to that of the second."""
    return float((one - other).norm() / other.norm().clamp(min=1e-30))


def _timed(trainer: Trainer, steps: Iterator[Batch]) -> float:
    """Return the seconds of an optimizer step with its reading."""
    times: list[float] = []
    while len(times) < 3 or sum(times) < BUDGET:
        times.append(_step_seconds(trainer, steps))
    return median(times)


def _step_seconds(trainer: Trainer, steps: Iterator[Batch]) -> float:
    """Take an optimizer step, and return its seconds."""
    began = time.perf_counter()
    trainer.step(next(steps))
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - began


def _memory() -> int:
    """Return the most bytes that this process had in memory; with a GPU, those of its tensors there."""
    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
