"""A small `vqgan`: its section, its images, its recipe."""

from typing import Any

import numpy as np
import torch

from darkroom.models.tokenizers.vqgan.recipe import VQGANRecipe
from darkroom.models.tokenizers.vqgan.settings import VQGAN
from darkroom.training.loop import seeded
from darkroom.training.recipe import Batch
from helpers import training

BINARY = {"entropy_weight": 0.1, "diversity": 2.0, "inverse_temperature": 100.0, "commitment_weight": 0.25}


def section(adversarial: dict[str, Any] | None = None, vq: dict[str, Any] | None = None, **changes: Any) -> VQGAN:
    """Return the section, with changes."""
    values: dict[str, Any] = {
        "training": {},
        "width": 8,
        "layers": 2,
        "residual_blocks": 1,
        "norm_groups": 4,
        "pixels": "signed",
        "quantiser": "vq",
        "codebook_size": 16,
        "codebook_dim": 4,
        "vq": {
            "cosine": True,
            "decay": 0.8,
            "kmeans_init": True,
            "dead_below": 1.0,
            "gradient": "rotation",
            "commitment_weight": 0.5,
        },
        "simvq": {"gradient": "rotation", "codebook_weight": 1.0, "commitment_weight": 0.25},
        "lfq": BINARY,
        "bsq": BINARY,
        "fsq": {"levels": [4, 4]},
        "reconstruction": "l1",
        "perceptual": {"network": "none", "weight": 0.0},
        "adversarial": {
            "weight": 0.0,
            "loss": "hinge",
            "start": 16,
            "adaptive": "taming",
            "channels": [8, 8],
            "norm_groups": 4,
            "lr_scale": 1.0,
            "betas": (0.5, 0.9),
            "clip_norm": None,
            "gradient_penalty": 10.0,
            "gradient_penalty_every": 2,
        },
    }
    values["adversarial"] |= adversarial or {}
    values["vq"] |= vq or {}
    return VQGAN(**{**values, **changes})


class Pictures:
    """20 images of 16 x 16 pixels, or the first of them, each a ramp of its own and some noise."""

    def __init__(self, count: int = 20) -> None:
        noise = torch.randint(0, 60, (20, 3, 16, 16), generator=torch.Generator().manual_seed(0))
        ramp = torch.arange(16).view(1, 1, 1, 16) * torch.arange(20).view(20, 1, 1, 1) // 2
        self.images = (noise + ramp).to(torch.uint8)[:count]

    def __len__(self) -> int:
        return len(self.images)

    def __getitems__(self, rows, positions=None):
        return {"images": self.images[list(rows)].numpy()}

    def keys(self, rows):
        return [f"key{row}" for row in rows]


def recipe(settings: VQGAN, perceptual: torch.nn.Module | None = None, **changes: Any) -> VQGANRecipe:
    """Return the recipe with the weights of seed 3."""
    with seeded(3):
        return VQGANRecipe(settings, training(**changes), (3, 16, 16), Pictures(), Pictures(), perceptual)


def batch(first: int, images: int = 8) -> Batch:
    """Return the images of the positions from `first` on, one after the other."""
    rows = [row % 20 for row in range(first, first + images)]
    return Batch(np.arange(first, first + images), {"images": Pictures().images[rows]})
