"""What several tests build."""

from typing import Any

from darkroom.schemas.run import Run
from darkroom.schemas.training import Training


def training(**changes: Any) -> Training:
    """Return the settings of a training of 8 updates of 8 images, with changes."""
    values: dict[str, Any] = {
        "seed": 0,
        "threads": 1,
        "precision": "fp32",
        "images": 64,
        "batch": 8,
        "learning_rate": 0.01,
        "schedule": "constant",
        "warmup": 0,
        "betas": (0.9, 0.99),
        "weight_decay": 0.0,
        "clip_norm": 1.0,
        "ema_decay": 0.9,
        "log_every": 16,
        "validate_every": 32,
    }
    return Training(**{**values, **changes})


def run(**changes: Any) -> Run:
    """Return the section `run` on the CPU, with changes."""
    values: dict[str, Any] = {
        "device": "cpu",
        "workers": 0,
        "micro_batch": None,
        "checkpoint_every": 1e9,
        "keep": 2,
        "grid_every": 0,
        "trackers": [],
    }
    return Run(**{**values, **changes})
