"""A small KL autoencoder with every loss, on noise, and its training as one of several processes."""

import json
from pathlib import Path

import numpy as np
import torch

from darkroom.models.evaluators.teacher import Teacher
from darkroom.models.tokenizers.kl.recipe import KLRecipe
from darkroom.models.tokenizers.perceptual import LevelDistance
from darkroom.training.loop import train
from helpers import run, training
from models.tokenizers.sections import adversarial, kl, perceptual
from training.toy import places

GAME = {"weight": 0.5, "start": 12, "adaptive": "taming", "gradient_penalty": 10.0, "gradient_penalty_every": 2}
ALL = {"perceptual": perceptual("teacher", 0.5), "adversarial": adversarial(**GAME)}


def teacher():
    torch.manual_seed(1)
    return LevelDistance(Teacher(in_channels=3, classes=2, channels=[4, 4], layers=1)).frozen()


def distances(one, other):
    """Return how far two trainings ended from each other, of each weight, as a fraction of the way that it went."""
    start = recipe(changes=ALL).modules
    return {
        f"{name}.{key}": (torch.dist(one[name][key], other[name][key]) / torch.dist(one[name][key], value)).item()
        for name, module in start.items()
        for key, value in module.named_parameters()
        # Softmax and hinge are the same whatever these are: their gradients are rounding alone.
        if not key.endswith(("to_k.bias", "layers.7.bias"))
    }


def pictures():
    return torch.from_numpy(np.random.default_rng(0).integers(0, 256, (16, 3, 16, 16), dtype=np.uint8))


class Pictures:
    """16 images of noise; `hook` is told how many images were asked for."""

    def __init__(self, hook=None):
        self.images, self.hook = pictures().numpy(), hook

    def __len__(self):
        return len(self.images)

    def __getitems__(self, rows, positions=None):
        if self.hook and positions is not None:
            self.hook(int(positions[-1]) + 1)
        return {"images": self.images[list(rows)]}

    def keys(self, rows):
        return [str(row) for row in rows]


def recipe(hook=None, changes=None, **more):
    settings = kl(**{"kl_weight": 0.25} | (changes or {}) | more)
    torch.manual_seed(0)
    frozen = teacher() if settings.perceptual.active else None
    torch.manual_seed(0)
    return KLRecipe(settings, training(seed=3), (3, 16, 16), Pictures(hook), Pictures(), frozen)


def member(folder: Path, _: int, count: int, micro: int | None) -> None:
    """Train as one of `count` processes; as the first, which alone returns, write records and what was learned."""
    settings = training(seed=3, processes=count, images=32, learning_rate=1e-4, log_every=8)
    trainer = train(recipe(changes=ALL), settings, run(micro_batch=micro), places(folder))
    torch.save({name: module.state_dict() for name, module in trainer.modules.items()}, folder / "weights.pt")
    (folder / "records.json").write_text(json.dumps(trainer.records))
