"""The smallest training: a line through 20 points."""

import numpy as np
import torch
from torch import nn

from darkroom.training.loop import seeded
from darkroom.training.recipe import Batch, Phase, Recipe
from darkroom.training.start import OutputPaths


class Points:
    """20 rows of one number."""

    def __len__(self):
        return 20

    def __getitems__(self, rows, positions=None):
        return {"x": np.array([[row / 10] for row in rows], dtype=np.float32)}

    def keys(self, rows):
        return [f"key{row}" for row in rows]


class Line(Recipe):
    """One module, one phase, images of noise; `hook` is called with the number of losses so far."""

    def __init__(self, hook=None):
        with seeded(7):
            self.modules = {"line": nn.Linear(1, 1)}
        self.phases = (Phase("line", self.loss),)
        self.train, self.val = Points(), Points()
        self.hook, self.losses = hook, 0

    def loss(self, batch: Batch):
        self.losses += 1
        if self.hook:
            self.hook(self.losses)
        return {"loss": self.validate(batch)["loss"].mean()}

    def validate(self, batch: Batch):
        return {"loss": (self.modules["line"](batch.data["x"]) - 1).square().mean(dim=1)}

    def preview(self):
        return torch.arange(3 * 3 * 4 * 4).to(torch.uint8).reshape(3, 3, 4, 4).numpy()


def places(folder) -> OutputPaths:
    """Return where a training in `folder` writes."""
    return OutputPaths(folder / "state" / "line-0123", folder / "curves", folder / "logs" / "train_line")
