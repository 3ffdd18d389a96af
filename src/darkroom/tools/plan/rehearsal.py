"""Run one real stage in miniature, metered, in its own process.

For a training, the trainer takes a few optimizer steps, validates and draws grids; the rest is scaled.
"""

import contextlib
import importlib
import json
import resource
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import psutil
import torch
from torch import nn

from darkroom.artifacts.manifest import NAME
from darkroom.check.check import schema
from darkroom.dag.stages import TRAININGS
from darkroom.errors import DarkroomError
from darkroom.params.run import Run
from darkroom.params.section import NO_FILE, validate
from darkroom.params.stage import OUTPUTS, stage_params
from darkroom.params.training import Init, Training
from darkroom.terminal.numbers import bytes_of
from darkroom.tools.plan.meter import Counter, Meter, clock
from darkroom.tools.plan.miniature import Miniature, enter, small
from darkroom.tools.plan.table import SKIPPED, StagePlan
from darkroom.training import evaluation
from darkroom.training.after_step import add_to_sample_evolution, points_of_sample_evolution, write_grids
from darkroom.training.averages import write_kept
from darkroom.training.curves import write_curves
from darkroom.training.guards import is_out_of_memory
from darkroom.training.loop import remaining_batches
from darkroom.training.optimizer import parameter_groups, state_bytes
from darkroom.training.precision import autocast
from darkroom.training.recipe import Batch, Recipe
from darkroom.training.start import OutputPaths, open_training
from darkroom.training.state import declared
from darkroom.training.train_state import TrainState

BUDGET = 0.25  # seconds for which optimizer steps are repeated
COUNTED = (2, 4)  # images of the two passes that show how operations and activations grow with a batch
_RATE = 1e-12  # learning rate: the same operations, but random networks do not diverge


class TooLargeError(DarkroomError):
    """The training does not fit in the memory of this machine."""


@dataclass
class Rehearsal:
    """Replace the training loop of a stage, and add the results to its plan."""

    meter: Meter  # of the networks that are called without gradients
    scale: int  # images of the real data set for each image of the small one
    plan: StagePlan
    took: float = 0.0  # seconds of the rehearsal, including `spared` seconds; they are not the training's

    def train(self, recipe: Recipe, settings: Training, run: Run, places: OutputPaths) -> TrainState:
        """Replace `darkroom.training.loop.train`.

        Raises:
            TooLargeError: the weights, the state of the training, or a batch do not fit in the free memory.
        """
        began, spared, plan = clock(), self.meter.spared, self.plan
        plan.parameters = sum(p.numel() for p in _trained(recipe))
        plan.memory = memory_of(recipe, settings)
        self._require_memory(recipe.whole_batch)
        trainer = open_training(recipe, alone(settings), here(run), places)
        plan.disk["state"] = (run.keep + 1) * trainer.checkpoint_bytes
        trainer.images = begin = first_image(recipe, trainer.settings)
        steps = endless(trainer, begin)
        self._count_operations(trainer, next(steps), settings)
        self._require_memory(recipe.whole_batch)
        self._time(trainer, settings, run, steps, places.logs)
        before = trainer.settings.images - trainer.settings.batch
        trainer.images = trainer.settings.images
        evaluation.record(trainer, before)
        write_curves(places.curves, trainer.records)
        for images in settings.kept_images:
            write_kept(places.state, images, {"raw": trainer.ema.state, "averaged": trainer.ema.state})
        self.meter.forget()
        self.took += clock() - began + self.meter.spared - spared
        return trainer

    def _require_memory(self, whole_batch: bool) -> None:
        needed, free = sum(self.plan.memory.values()) - self.plan.memory["weights"], _available()
        if needed > free:
            remedy = "lower its `batch`" if whole_batch else "lower `run.micro_batch`"
            raise TooLargeError(
                f"it needs about {bytes_of(needed)} more, but {bytes_of(free)} are free: not timed; {remedy}, "
                "or set `run.activation_checkpointing`"
            )

    def _count_operations(self, trainer: TrainState, batch: Batch, settings: Training) -> None:
        """Count the passes of two small batches, and extrapolate linearly to a whole batch."""
        here = trainer.settings.batch
        micro = trainer.pass_size(here)
        few, more = (min(size, micro) for size in COUNTED)
        one, other = (_passes(trainer, batch, size) for size in (few, more))

        def grown(first: float, second: float) -> float:
            return second + (second - first) / max(1, more - few) * (micro - more)

        self.plan.forward, self.plan.backward = (
            grown(before, after) / micro * settings.images for before, after in zip(one[:2], other[:2], strict=True)
        )
        held = sum(value.nbytes for value in batch.data.values())
        self.plan.memory["activations"] = int(max(0.0, grown(one[2], other[2]))) + held

    def _time(self, trainer: TrainState, settings: Training, run: Run, steps: Iterator[Batch], logs: Path) -> None:
        """Add up optimizer steps, validations, scores and grids, each by its number in the loop."""
        step, first = _step_seconds(trainer, steps)
        self.plan.seconds += first + settings.images // settings.batch * step
        grids = settings.images // run.grid_every if run.grid_every else 0
        factor = self.scale / settings.processes
        calls: list[tuple[float, Callable[[], Any]]] = [
            (-(-settings.images // settings.validate_every) * factor, partial(evaluation.validate, trainer)),
            (grids, partial(write_grids, trainer, logs)),
            (points_of_sample_evolution(settings.images), partial(add_to_sample_evolution, trainer, logs)),
        ]
        for every, scores in trainer.recipe.evaluations:
            each = 1 / settings.processes if scores in trainer.recipe.generated else factor
            calls.append((-(-settings.images // every) * each, partial(evaluation.evaluate, trainer, scores)))
        for times, call in calls:
            if times:
                self.meter.forget()
                began, spared = clock(), self.meter.spared
                call()
                self.plan.seconds += times * (clock() - began + self.meter.spared - spared)


def _trained(recipe: Recipe) -> list[nn.Parameter]:
    modules = {phase.module: recipe.modules[phase.module] for phase in recipe.phases}
    return [p for module in modules.values() for p in module.parameters() if p.requires_grad]


def memory_of(recipe: Recipe, settings: Training) -> dict[str, int]:
    """Return the bytes that one process uses besides activations, by purpose.

    Weights, gradients, the optimizer's state, averages, and the exchange of gradients between several processes.
    """
    modules = recipe.modules.values()
    weights = sum(tensor.nbytes for module in modules for tensor in (*module.parameters(), *module.buffers()))
    gradients = sum(p.nbytes for p in _trained(recipe))
    names = sorted({phase.module for phase in recipe.phases})
    # With `ema_decay` 0 the loop also keeps a copy; `best` keeps the averages of the best validation.
    averages = 1 + (settings.select == "best")
    return {
        "weights": weights,
        "gradients": gradients,
        "optimizer": sum(state_bytes(parameter_groups(recipe.modules[name], settings)) for name in names),
        "averages": averages * weights,
        **({"exchange": gradients} if settings.processes > 1 else {}),
    }


def alone(settings: Training) -> Training:
    """Return the settings of one process with its part of each batch."""
    batch = settings.batch // settings.processes
    update: dict[str, Any] = {"processes": 1, "batch": batch, "images": settings.images // batch * batch}
    update |= {"learning_rate": _RATE, "warmup": 0, "init": Init(folder=NO_FILE, url=None, sha256=None, skip=[])}
    return settings.model_copy(update=update)


def here(run: Run) -> Run:
    """Return run settings without workers, trackers or remote checkpoints."""
    elsewhere: dict[str, Any] = {"accelerate": None, "checkpoints_from": None, "checkpoints_to": None, "trackers": []}
    return run.model_copy(update={"workers": 0, **elsewhere})


def first_image(recipe: Recipe, settings: Training) -> int:
    """Return an image at which all phases run, but not the first, at which codebooks are initialised."""
    starts = max((phase.start for phase in recipe.phases if phase.start < settings.images), default=0)
    batch = settings.batch
    return min(batch * max(1, -(-starts // batch)), settings.images - batch)


def endless(trainer: TrainState, start: int) -> Iterator[Batch]:
    """Yield batches endlessly: those from `start` to the end of the training, repeated."""
    while True:
        trainer.images = start
        yield from remaining_batches(trainer)


def _passes(trainer: TrainState, batch: Batch, images: int) -> tuple[int, int, int]:
    """Return forward and backward operations of all phases for the first images of a batch, and the peak bytes."""
    piece = Batch(batch.positions[:images], {name: value[:images] for name, value in batch.data.items()})
    forward = backward = peak = 0
    for phase in trainer.recipe.phases:
        modules = trainer.recipe.modules.values()
        known = [tensor for module in modules for tensor in (*module.parameters(), *module.buffers())]
        gradients = [p for p in trainer.recipe.modules[phase.module].parameters() if p.requires_grad]
        for parameter in gradients:
            parameter.grad = torch.zeros_like(parameter)
        known += [p.grad for p in gradients if p.grad is not None]
        with Counter([*known, *piece.data.values()]) as counter:
            with autocast(trainer.settings, trainer.device):
                loss = phase.loss(piece)["loss"]
            ahead = counter.flops
            loss.backward()
            del loss
        forward, backward, peak = forward + ahead, backward + counter.flops - ahead, max(peak, counter.peak)
        for module in modules:
            module.zero_grad(set_to_none=True)
    return forward, backward, peak


def _step_seconds(trainer: TrainState, steps: Iterator[Batch]) -> tuple[float, float]:
    """Return the seconds of an optimizer step including reading, and the extra seconds of the first one."""
    times: list[float] = []
    started = time.perf_counter()
    while len(times) < 2 or time.perf_counter() - started < BUDGET:
        began = clock()
        trainer.step(next(steps))
        times.append(clock() - began)
    each = median(times[1:])
    return each, max(0.0, times[0] - each)


def _available() -> int:
    """Return the free bytes of the device, including those cached by torch."""
    if not torch.cuda.is_available():
        return psutil.virtual_memory().available
    return torch.cuda.mem_get_info()[0] + torch.cuda.memory_reserved() - torch.cuda.memory_allocated()


def rehearse(name: str, on: Miniature) -> StagePlan:
    """Run a stage, or one of its items (STAGE@ITEM), in miniature and return its plan."""
    stage, _, item = name.partition("@")
    enter(on.folder, download=stage == "ingest")
    plan, meter = StagePlan(name), Meter()
    training = Rehearsal(meter, on.scale, plan)
    wall, children = time.perf_counter(), _children()
    began = clock()
    log = on.folder / "logs" / f"{name}.log"
    params: Any = None
    with log.open("w") as output, contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        try:
            params = small(validate(schema(stage), stage_params(stage, item or None)), on.parts, on.scale)
            body = importlib.import_module(f"darkroom.stages.{stage}").run
            loop = {"train": training.train} if stage in TRAININGS else {}
            with meter.watching():
                body(params, *filter(None, [item]), **loop)
        except TooLargeError as error:
            plan.source = "too large"
            plan.notes.append(f"{name}: {error}")
        except Exception as error:
            traceback.print_exc()
            plan.source = "too large" if is_out_of_memory(error.__cause__ or error) else "not measured"
            message = str(error) if isinstance(error, DarkroomError) else f"{type(error).__name__}: {error}"
            plan.notes.append(f"{name} could not be run in miniature: {message}")
    helped = (_children() - children) / max(1, getattr(getattr(params, "run", None), "ingest_processes", 1))
    work = clock() - began + helped
    plan.wall = time.perf_counter() - wall
    # On a GPU `clock` waits for all of it, and its first call sets CUDA up, as each stage with networks does.
    plan.work = plan.wall if torch.cuda.is_available() else work
    _fill(plan, meter, training.took, item or None)
    if plan.source == "measured" and (reason := _skipped(stage, item or None, getattr(params, "idle", None))):
        plan.source, plan.skipped = SKIPPED, reason
    return plan


def _fill(plan: StagePlan, meter: Meter, took: float, item: str | None) -> None:
    """Add the meter's results to the plan; `took`: seconds of the rehearsal of a training."""
    plan.seconds += max(0.0, plan.work + meter.spared - took)
    stage = plan.stage.partition("@")[0]
    files = {file for path in declared(stage, item, OUTPUTS) for file in (Path(path), *Path(path).rglob("*"))}
    plan.disk["outputs"] = 2 * sum(file.stat().st_size for file in files if file.is_file())
    if plan.parameters is None and meter.parameters is not None:
        plan.parameters, plan.forward = meter.parameters, float(meter.flops)
        plan.memory = {"weights": meter.weights, "activations": meter.peak}
    plan.gpu = plan.parameters is not None


def _skipped(stage: str, item: str | None, idle: str | None) -> str | None:
    """Return why a stage had nothing to do, as `write_untrained` and stages/empty.py write it; None if it had work."""
    outs = [Path(path) for path in declared(stage, item, OUTPUTS)]
    scores = [json.loads(path.read_text()) for path in outs if path.suffix == ".json"]
    manifests = [json.loads((path / NAME).read_text()) for path in outs if (path / NAME).is_file()]
    empty = [each for each in manifests if "reason" in each or each.get("images") == 0 or each.get("clip") == ""]
    if any(scores) or not (scores or empty):
        return None
    reasons = [each.get("reason", "there is no CLIP" if "clip" in each else "it does not generate") for each in empty]
    return idle or next(iter(reasons), "nothing is scored")


def _children() -> float:
    """Return the CPU seconds of processes started by this one."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
