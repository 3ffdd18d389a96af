"""A small transformer with losses of its tokens, on noise, and its training as one of several processes."""

import json
import os
import signal
from pathlib import Path

import numpy as np
import torch

from darkroom.diffusion.scalers import LatentScaler
from darkroom.models.generators.dit.config import DiTConfig
from darkroom.models.generators.dit.network import DiT
from darkroom.models.generators.dit.recipe import DiTRecipe
from darkroom.models.generators.dit.settings import DiTDiffusion, DiTSampling, Representation
from darkroom.training.loop import train
from darkroom.training.recipe import Batch
from helpers import run, training
from training.together import shard_everything
from training.toy import places, weights

SHAPE, DEPTH = (2, 4, 4), 6
BOTH = {"dispersive": 0.5, "alignment": 0.2}


class Latents:
    """16 latents of noise; the training is told to stop where it reads position `stop_at`."""

    def __init__(self, stop_at=None):
        rng = np.random.default_rng(0)
        self.mean = rng.normal(size=(16, *SHAPE)).astype(np.float32)
        self.stop_at = stop_at

    def __len__(self):
        return len(self.mean)

    def __getitems__(self, rows, positions=None):
        if positions is not None and self.stop_at in positions:
            os.kill(os.getpid(), signal.SIGTERM)
        return {"mean": self.mean[list(rows)], "labels": np.array(rows) % 5}

    def keys(self, rows):
        return [str(row) for row in rows]


def recipe(stop_at=None, diffusion=None, model=None, **losses):
    """Return the recipe of a transformer whose gates are open, so that each block has a part in what comes out."""
    torch.manual_seed(0)
    network = DiT(DiTConfig(2, 4, 5, 16, DEPTH, 2, 2, **model or {}))
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            if "modulation" in name or "head" in name:
                parameter.normal_(std=0.1)
    settings = DiTDiffusion(normalise="channel", **diffusion or {})
    rows, scaler = (Latents(stop_at), Latents()), LatentScaler([0.0, 0.0], [1.0, 1.0])
    made = DiTRecipe(network, settings, 9, *rows, scaler, None, DiTSampling(), representation=Representation(**losses))
    made.strip = lambda: None  # it has no tokenizer
    return made


def batch(count=8):
    values = Latents().__getitems__(range(count))
    return Batch(np.arange(count), {name: torch.from_numpy(value) for name, value in values.items()})


def member(folder: Path, rank: int, count: int, losses: dict, stop_at: int | None, sharded: bool) -> None:
    """Train as process `rank` of `count`, and write weights and records as the first."""
    if sharded:
        shard_everything()
    settings = training(processes=count, log_every=16, select="best", validate_every=32)
    trainer = train(recipe(stop_at, **losses), settings, run(), places(folder))
    values = {name: value.hex() for name, value in weights(trainer).items()}
    (folder / "result.json").write_text(json.dumps({"records": trainer.records, "weights": values}))
