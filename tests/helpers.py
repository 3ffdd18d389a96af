"""What several tests build."""

from typing import Any

from darkroom.schemas.run import Run
from darkroom.schemas.training import Training


def training(**changes: Any) -> Training:
    """Return the settings of a training of 8 updates of 8 images, with changes."""
    values: dict[str, Any] = {
        "seed": 0,
        "threads": 1,
        "processes": 1,
        "precision": "fp32",
        "tf32": False,
        "compile": False,
        "channels_last": False,
        "images": 64,
        "batch": 8,
        "learning_rate": 0.01,
        "schedule": "constant",
        "warmup": 0,
        "final_rate": 0.0,
        "decay_images": None,
        "milestones": [],
        "betas": (0.9, 0.99),
        "weight_decay": 0.0,
        "clip_norm": 1.0,
        "groups": [],
        "ema_decay": 0.9,
        "ema_profiles": [],
        "ema_snapshots": 4,
        "non_finite": "stop",
        "select": "last",
        "init": {"folder": "data/none", "url": None, "sha256": None, "skip": []},
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
        "activation_checkpointing": False,
        "accelerate": None,
        "at_risk": 1e9,
        "keep": 2,
        "checkpoints_to": None,
        "checkpoints_from": None,
        "grid_every": 0,
        "trackers": [],
    }
    return Run(**{**values, **changes})
