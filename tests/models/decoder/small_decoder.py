"""A decoder's U-Nets and what they are trained on, small."""

from typing import Any

import numpy as np
import torch

from darkroom.diffusion.objectives import objective_of
from darkroom.diffusion.scalers import EmbeddingScaler
from darkroom.models.decoder.data import Conditioner, PixelSpace
from darkroom.models.decoder.opening import DecoderData, config_of
from darkroom.models.decoder.recipe import DecoderRecipe
from darkroom.models.decoder.unet_settings import UNet
from models.decoder.small_unets import unet

MODEL: dict[str, Any] = {
    "channels": [8, 16],
    "attention": [False, True],
    "layers": 1,
    "head_dim": 8,
    "norm_groups": 4,
    "patch": 1,
    "dropout": 0.0,
    "image_tokens": 2,
    "image_to_time": True,
    "image_map": 3,
    "text_tokens": True,
    "self_condition": False,
}
DIFFUSION: dict[str, Any] = {
    "objective": "gaussian",
    "schedule": "cosine",
    "target": "eps",
    "loss": "l2",
    "variance": "learned_range",
    "variance_range": "linear",
    "bound_weight": 0.001,
    "p2_gamma": 0.0,
    "p2_k": 1.0,
    "min_snr": None,
    "image_dropout": 0.1,
    "text_dropout": 0.5,
    "embedding_noise": 0.0,
}
LOW: dict[str, Any] = {
    "downsample": "area",
    "blur": 0.0,
    "blur_sigma": [0.6, 0.6],
    "blur_kernel": 3,
    "noise": 0.0,
    "crop": None,
}
UP = {"size": 16, "low_size": 8, "embeddings": "data/none"}
UP_MODEL = {
    "attention": [False, False],
    "image_tokens": 0,
    "image_to_time": False,
    "image_map": 0,
    "text_tokens": False,
}
STEPS = 40
MEAN, STD = [0.1, -0.2, 0.3, 0.0, 1.0, 0.5], [0.5, 2.0, 1.0, 0.25, 1.5, 0.0]  # of embeddings
IMAGES = 24


def section(
    model: dict[str, Any] | None = None,
    diffusion: dict[str, Any] | None = None,
    low: dict[str, Any] | None = None,
    **changes: Any,
) -> UNet:
    """Return the section of a U-Net of 8 x 8 pixels with changes."""
    values = {
        "size": 8,
        "low_size": None,
        "embeddings": "data/embeddings",
        "clip": "data/none",
        "weights": "data/none",
        "frozen": False,
        "model": {**MODEL, **(model or {})},
        "diffusion": {**DIFFUSION, **(diffusion or {})},
        "low": {**LOW, **(low or {})},
        "training": {},
    }
    return UNet(**{**values, **changes})


def up_sampler(low: dict[str, Any] | None = None, **changes: Any) -> UNet:
    """Return the section of an up-sampler from 8 to 16 pixels."""
    return section(UP_MODEL | changes.pop("model", {}), changes.pop("diffusion", None), low, **{**UP, **changes})


class Rows:
    """Pictures of 16 x 16 pixels with embeddings and encodings; `hook` is told of each batch that is read."""

    def __init__(self, hook: Any = None) -> None:
        random = np.random.default_rng(0)
        text = random.standard_normal((IMAGES, 4, 5)).astype(np.float16)
        text[:, 2:] = 0
        self.all = {
            "images": random.integers(0, 256, (IMAGES, 1, 16, 16), dtype=np.uint8),
            "image": random.standard_normal((IMAGES, 6)).astype(np.float16),
            "encoding": text,
        }
        self.hook = hook

    def __len__(self) -> int:
        return IMAGES

    def __getitems__(self, rows: Any, positions: Any = None) -> dict[str, Any]:
        if self.hook is not None and positions is not None:
            self.hook(int(positions[0]))
        return {name: values[list(rows)] for name, values in self.all.items()}

    def keys(self, rows: Any) -> list[str]:
        return [f"picture-{row}" for row in rows]


def recipe(settings: UNet, hook: Any = None, seed: int = 3, steps: int = STEPS) -> DecoderRecipe:
    """Return the recipe of a U-Net over `Rows`."""
    opened = DecoderData(PixelSpace(), Conditioner(EmbeddingScaler(MEAN, STD)), {}, 1, {}, 6, (4, 5))
    model = unet(seed, **vars(config_of(settings, opened))).train()
    objective = objective_of(settings.diffusion, steps)
    return DecoderRecipe(model, settings, objective, opened.space, opened.conditioner, seed, Rows(hook), Rows())


def told_to(made: DecoderRecipe) -> list[dict[str, Any]]:
    """Return a list that gets the arguments of each call of the U-Net."""
    calls: list[dict[str, Any]] = []

    def keep(module: torch.nn.Module, given: tuple[Any, ...]) -> None:
        calls.append(dict(zip(("x", "steps", "told", "before"), given, strict=False)))

    made.model.register_forward_pre_hook(keep)
    return calls
