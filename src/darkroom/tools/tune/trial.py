"""Run a few optimizer steps of a training, and measure time, memory, loss and gradient."""

import importlib
import time
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from math import inf, isfinite
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn

from darkroom.check.check import schema
from darkroom.errors import DarkroomError
from darkroom.params.run import Run
from darkroom.params.section import validate
from darkroom.params.stage import stage_params
from darkroom.params.training import Training
from darkroom.tools.editing import put
from darkroom.tools.plan.miniature import Miniature, enter, small
from darkroom.tools.plan.rehearsal import alone, endless, first_image, here
from darkroom.tools.tune.search import KEYS, NOTHING, Changes, Result, key_of
from darkroom.training.recipe import Batch, Recipe
from darkroom.training.start import OutputPaths, open_training
from darkroom.training.train_state import TrainState

BUDGET = 1.5  # seconds for which optimizer steps are repeated
_WARM = 8  # optimizer steps before losses and gradients are compared: many networks begin with layers of zeros
_GENTLE = 0.1  # fraction of the learning rate in these steps, which have no warm-up
_MANY = 64  # optimizer steps from which batches are taken
_BLOCK = 8  # optimizer steps of a measurement on a GPU, which computes one while the next is read
_PROBES = 4  # batches whose losses and gradients are compared
_NUMBERS = 4_000_000  # maximum numbers of a gradient that are compared, evenly spread
_SCALES = 16  # maximum optimizer steps until the loss scale of fp16 fits
_TINY = 1e-30
_CONVOLUTIONS = (nn.Conv2d, nn.ConvTranspose2d)


class Enough(BaseException):
    """End a stage after its trial; not an Exception, so no handler in between catches it."""


@dataclass
class Trial:
    """Replace the training loop of a stage, and store the result.

    exact: file with weights, losses and gradient of exact settings, written by the first trial; None: only report
        the settings.
    """

    exact: Path | None
    result: Result | None = None

    def train(self, recipe: Recipe, settings: Training, run: Run, places: OutputPaths) -> TrainState:
        """Replace `darkroom.training.loop.train`. Raises Enough."""
        now = {key: getattr(settings, key) for key in (*KEYS, "processes")}
        if self.exact is None:
            self.result = Result(now=now)
            raise Enough
        begin = first_image(recipe, settings.model_copy(update={"images": settings.images + _MANY * settings.batch}))
        gentle = _gentle(settings, begin)
        trainer = open_training(recipe, gentle, here(run), places)
        steps = endless(trainer, begin)
        probes = list(islice(steps, _PROBES))
        first = _seconds(trainer, steps)
        _find_scale(trainer, steps)
        if not self.exact.exists():
            _write_exact(self.exact, trainer, steps, probes)
        apart = _departure(trainer, probes, self.exact)
        seconds = _timed(trainer, steps)
        self.result = Result(
            updates=settings.images // settings.batch,
            batch=trainer.settings.batch,
            seconds=seconds,
            first=max(0.0, first - seconds),
            **apart,
            convolutions=any(isinstance(each, _CONVOLUTIONS) for m in trainer.modules.values() for each in m.modules()),
            now=now,
            gpu=trainer.device.type == "cuda",
        )
        raise Enough


def attempt(name: str, on: Miniature, changes: Changes | None, exact: Path) -> Result:
    """Run a training stage, or one of its items (STAGE@ITEM), up to its training, and try the training.

    `changes` override params.yaml; None: only report its settings. For `exact`, see `Trial`.
    """
    stage, _, item = name.partition("@")
    enter(on.folder, download=False)
    trial = Trial(None if changes is None else exact)
    try:
        values = stage_params(stage, item or None)
        for key, value in (changes or {}).items():
            put(values, key_of(name, key, values), value)
        params = small(validate(schema(stage), values), on.parts, on.scale)
        body = importlib.import_module(f"darkroom.stages.{stage}").run
        body(params, *filter(None, [item]), train=trial.train)
    except Enough:
        pass
    except Exception as error:
        traceback.print_exc()
        return Result(why=str(error) if isinstance(error, DarkroomError) else f"{type(error).__name__}: {error}")
    return trial.result or Result(why=NOTHING)


def _gentle(settings: Training, begin: int) -> Training:
    """Return the settings of one process, with steps safe for random networks, for batches from `begin` on."""
    one = alone(settings)
    update = {"images": begin + _MANY * one.batch, "learning_rate": _GENTLE * settings.learning_rate}
    return one.model_copy(update={**update, "schedule": "constant"})


def _find_scale(trainer: TrainState, steps: Iterator[Batch]) -> None:
    """Take steps until the fp16 loss scale accepts one; no steps for other precisions."""
    scalers = [scaler for scaler in trainer.scalers.values() if scaler.is_enabled()]
    for _ in range(_SCALES if scalers else 0):
        before = [scaler.get_scale() for scaler in scalers]
        trainer.step(next(steps))
        if [scaler.get_scale() for scaler in scalers] >= before:
            return


def _write_exact(path: Path, trainer: TrainState, steps: Iterator[Batch], probes: Sequence[Batch]) -> None:
    """Train for a few steps, and store the weights, their averages, and their results on the probes."""
    for _ in range(_WARM - 1):
        trainer.step(next(steps))
    losses, gradients = _probed(trainer, probes)
    stored = {
        "weights": {name: module.state_dict() for name, module in trainer.modules.items()},
        "averages": trainer.ema.state,
        "losses": losses,
        "gradients": gradients,
    }
    torch.save(stored, path)


def _departure(trainer: TrainState, probes: Sequence[Batch], path: Path) -> dict[str, Any]:
    """Return the differences of losses and gradients from exact settings at equal weights, as fields of `Result`."""
    exact = torch.load(path, weights_only=True, map_location="cpu")
    for name, module in trainer.modules.items():
        module.load_state_dict(exact["weights"][name])
        for key, value in trainer.ema.state[name].items():
            value.copy_(exact["averages"][name][key])
    losses, gradients = _probed(trainer, probes)
    shift = (losses - exact["losses"]).mean(dim=0).abs()  # of each phase
    spread = exact["losses"].std(dim=0)
    relative = (shift / exact["losses"].mean(dim=0).abs().clamp(min=_TINY)).max()
    gradient, departure, noise = gradients_apart(gradients, exact["gradients"])
    departures = torch.cat([torch.tensor([departure]), shift / spread.clamp(min=_TINY)])
    far = float(departures.max())
    return {"loss": float(relative), "gradient": gradient, "departure": far, "noise": noise}


def gradients_apart(gradients: Tensor, exact: Tensor) -> tuple[float, float, float]:
    """Compare the gradients of batches, (B, N), with those of exact settings.

    Returns:
        their root mean square difference, relative to the exact ones; how far that departs; and the standard deviation
        between batches, relative to the mean. It departs by the larger of two parts: the shared difference of all
        batches, in standard deviations between batches, and the fraction that the rest adds to the variance.
    """
    count, mean = len(exact), exact.mean(dim=0)
    noise = float((exact - mean).square().sum() / (count - 1))
    apart = gradients - exact
    each, shared = float(apart.square().sum() / count), float(apart.mean(dim=0).square().sum())
    systematic = max(0.0, (count * shared - each) / (count - 1))  # the rest would leave each / count in the mean
    relative = (each / max(float(exact.square().sum()) / count, _TINY)) ** 0.5
    departure = max((systematic / max(noise, _TINY)) ** 0.5, (each - systematic) / max(noise, _TINY))
    return relative, departure if isfinite(each) else inf, (noise / max(float(mean.square().sum()), _TINY)) ** 0.5


def _probed(trainer: TrainState, probes: Sequence[Batch]) -> tuple[Tensor, Tensor]:
    """Return the results of batches, on the CPU: losses (B, phases) and gradients (B, N) of all phases."""
    losses, gradients = [], []
    numbers = sum(p.numel() for phase in trainer.recipe.phases for p in trainer.names[phase.module])
    every = -(-numbers // _NUMBERS)
    for batch in probes:
        pieces = batch.split(trainer.pass_size(len(batch)))
        parts = []
        for phase in trainer.recipe.phases:
            losses.append(trainer.gradients(phase, batch, pieces)["loss"].detach().cpu().double())
            trainer.scalers[phase.module].update()
            tensors = (p.grad for p in trainer.names[phase.module] if p.grad is not None)
            parts += [each.detach().flatten()[::every].float().cpu() for each in tensors]
        gradients.append(torch.cat(parts))
    return torch.stack(losses).reshape(len(probes), -1), torch.stack(gradients)


def _timed(trainer: TrainState, steps: Iterator[Batch]) -> float:
    block = _BLOCK if trainer.device.type == "cuda" else 1
    times: list[float] = []
    while len(times) < 3 or sum(times) < BUDGET:
        times.append(_seconds(trainer, steps, block))
    return median(times) / block


def _seconds(trainer: TrainState, steps: Iterator[Batch], count: int = 1) -> float:
    """Take some optimizer steps, and return their time in seconds."""
    began = time.perf_counter()
    for _ in range(count):
        trainer.step(next(steps))
    if trainer.device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - began
