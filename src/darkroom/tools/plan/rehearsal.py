"""A training rehearsed: the loop's own trainer takes a few updates, validates and draws, in a folder that is left."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import is_dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from darkroom.params.numbers import NO_FILE
from darkroom.params.run import Run
from darkroom.params.training import Init, Training
from darkroom.tools.plan.rows import Kept
from darkroom.tools.plan.timing import Stopwatch
from darkroom.training import evaluation
from darkroom.training.recipe import Batch, Recipe
from darkroom.training.trainer import Places, Trainer

_STEP = 1e-12  # learning rate: the same operations, and weights that no noise can drive to infinity
_CALLS = 2  # of a network with inputs of the same shape, after which its last answer stands in


class Rehearsal:
    """A trainer of one process on its part of the batch, at a place of the training in which all phases take a turn."""

    def __init__(self, recipe: Recipe, settings: Training, run: Run, folder: Path, watch: Stopwatch) -> None:
        self.watch, self.recipe = watch, recipe
        batch = settings.batch // settings.processes
        images = settings.images // settings.batch * batch
        recipe.train, recipe.val = Kept(recipe.train, batch), Kept(recipe.val, batch)
        own = {
            "processes": 1,
            "batch": batch,
            "images": images,
            "learning_rate": _STEP,
            "warmup": 0,
            "ema_snapshots": 1,
            "init": Init(folder=NO_FILE, url=None, sha256=None, skip=[]),
        }
        elsewhere: dict[str, Any] = {
            "workers": 0,
            "accelerate": None,
            "checkpoints_from": None,
            "checkpoints_to": None,
            "trackers": [],
        }
        self.trainer = Trainer(
            recipe,
            settings.model_copy(update=own),
            run.model_copy(update=elsewhere),
            Places(folder / "state", folder / "curves", folder / "logs"),
        )
        self.device = self.trainer.device
        # Not the very first update, in which codebooks begin.
        begins = max((phase.start for phase in recipe.phases if phase.start < images), default=0)
        self._begin = min(batch * max(1, -(-begins // batch)), images - batch)
        self._position = self.trainer.images = self._begin

    def _update(self) -> None:
        trainer = self.trainer
        size = trainer.settings.batch
        if trainer.images + size > trainer.settings.images - size:  # before the end, where snapshots are due
            trainer.images = self._begin
        data = self.recipe.train.__getitems__(range(size))
        positions = np.arange(self._position, self._position + size)  # what an update does may follow from its place
        self._position += size
        trainer.step(Batch(positions, {name: torch.as_tensor(data[name]).to(self.device) for name in data}))

    def update_seconds(self, budget: float) -> tuple[float, float]:
        """Return the seconds of an update, and those that the first takes more: compiling, the optimizer's state."""
        first = self.watch.once(self._update, self.device)
        second = self.watch.once(self._update, self.device)
        each = min(second, self.watch.seconds_of(self._update, self.device, budget)) if second < budget else second
        return each, max(0.0, first - each)

    def validation_seconds(self) -> float:
        """Return the seconds of validating one image, scores that need nothing but the recipe included."""
        if not len(self.recipe.val):
            return 0.0
        evaluate = self.recipe.evaluate_every > 0

        def validate() -> None:
            evaluation.validate(self.trainer)
            if evaluate:
                evaluation.evaluate(self.trainer)

        return self.watch.once(validate, self.device) / len(self.recipe.val)

    def grid_seconds(self) -> float:
        """Return the seconds of the pictures of one grid.

        A sampler asks the same network for each of its steps: after `_CALLS` answers the last one stands in, and the
        time of the answers is added.
        """
        modules = list(self.trainer.modules.values())
        drawing = evaluation.evaluating(self.trainer, averaged=False)
        with drawing, torch.no_grad(), _stand_ins(modules, self.watch, self.device) as saved:
            taken = self.watch.once(self.recipe.preview, self.device)
        return taken + saved()


@contextmanager
def rehearsal(recipe: Recipe, settings: Training, run: Run, watch: Stopwatch) -> Iterator[Rehearsal]:
    """Rehearse a training in a folder that is removed afterwards."""
    with TemporaryDirectory(prefix="darkroom-plan-") as folder:
        yield Rehearsal(recipe, settings, run, Path(folder), watch)


@contextmanager
def _stand_ins(modules: list[nn.Module], watch: Stopwatch, device: torch.device) -> Iterator[Callable[[], float]]:
    """Let each module answer `_CALLS` times for inputs of the same shapes, and its last answer stand in from then on.

    Yields what returns the seconds that were saved.
    """
    answers: dict[Any, tuple[int, float, Any]] = {}
    saved = 0.0

    def stand_in(number: int, forward: Callable[..., Any]) -> Callable[..., Any]:
        def answer(*inputs: Any, **named: Any) -> Any:
            nonlocal saved
            key = (number, repr(tree_map(_shape, (inputs, named))))
            count, seconds, result = answers.get(key, (0, 0.0, None))
            if count < _CALLS:

                def call() -> None:
                    nonlocal result
                    result = forward(*inputs, **named)

                seconds = watch.once(call, device)
                answers[key] = (count + 1, seconds, result)
            else:
                saved += seconds
            return tree_map(lambda value: value.clone() if isinstance(value, Tensor) else value, result)

        return answer

    before = [module.__dict__.get("forward") for module in modules]
    for number, module in enumerate(modules):
        module.forward = stand_in(number, module.forward)
    try:
        yield lambda: saved
    finally:
        for module, own in zip(modules, before, strict=True):
            del module.forward  # the class has its own
            if own is not None:
                module.forward = own


def _shape(value: Any) -> Any:
    """Return what stands for an argument: the shape of a tensor, and of what holds some, theirs."""
    if isinstance(value, Tensor):
        return tuple(value.shape)
    if is_dataclass(value) and not isinstance(value, type):
        return type(value).__name__, {name: _shape(held) for name, held in vars(value).items()}
    return value
