"""A recipe of two small modules that train in a moment, and what tests ask of a training."""

import numpy as np
import torch
from torch import nn

from darkroom.rng import normal
from darkroom.training.loop import seeded
from darkroom.training.recipe import Batch, Phase, Recipe
from darkroom.training.start import OutputPaths
from darkroom.training.train_state import TrainState


class Numbers:
    """20 rows of two numbers."""

    def __len__(self):
        return 20

    def __getitems__(self, rows, positions=None):
        return {"x": np.array([[row / 10, 1.0] for row in rows], dtype=np.float32)}

    def keys(self, rows):
        return [f"key{row}" for row in rows]


class Toy(Recipe):
    """Two modules that take turns, as in a GAN, with dropout and noise by position."""

    def __init__(self, hook=None):
        with seeded(7):
            first = nn.Sequential(nn.Linear(2, 8), nn.Dropout(0.5), nn.LayerNorm(8), nn.Linear(8, 1))
            second = nn.Linear(2, 1)
        self.modules = {"first": first, "second": second}
        self.phases = (Phase("first", self.one), Phase("second", self.two))
        self.train, self.val = Numbers(), Numbers()
        self.hook, self.seen = hook, []

    def one(self, batch: Batch):
        self.seen += batch.positions.tolist()
        if self.hook:
            self.hook(len(self.seen))
        noise = torch.from_numpy(normal(0, "toy", batch.positions.tolist(), (2,)))
        return {"loss": (self.modules["first"](batch.data["x"] + noise) - 1).square().mean()}

    def two(self, batch: Batch):
        return {"loss": (self.modules["second"](batch.data["x"]) + 1).square().mean()}

    def validate(self, batch: Batch):
        return {"loss": self.modules["first"](batch.data["x"]).square().mean(dim=1)}

    def preview(self):
        with torch.no_grad():
            shades = self.modules["first"](torch.rand(3, 2)).clamp(0, 255)
        return shades.to(torch.uint8).expand(3, 4).reshape(3, 1, 2, 2).numpy()


def places(folder) -> OutputPaths:
    return OutputPaths(folder / "state", folder / "curves", folder / "logs")


def weights(trainer: TrainState):
    state = {f"{n}/{k}": v for n, m in trainer.recipe.modules.items() for k, v in m.state_dict().items()}
    averages = {f"ema/{n}/{k}": v for n, s in trainer.ema.state.items() for k, v in s.items()}
    return {key: value.numpy().tobytes() for key, value in {**state, **averages}.items()}


def curves(folder):
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}
