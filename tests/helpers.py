"""What several tests build."""

import sys
import types
from contextlib import chdir
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from darkroom.models.kinds import TOKENIZERS
from darkroom.params.run import Run
from darkroom.params.training import Training
from darkroom.tools.editing import laid_over
from darkroom.tools.preset import overlay

ROOT = Path(__file__).resolve().parents[1]


def digits() -> str:
    """Return the text of params.yaml with the preset `digits`."""
    with chdir(ROOT):
        return laid_over(Path("params.yaml").read_text(), overlay("digits"))


_FOLDER = TemporaryDirectory(prefix="darkroom-digits-")  # removed when Python ends
DIGITS = Path(_FOLDER.name) / "params.yaml"  # a file with it
DIGITS.write_text(digits())


def add_tokenizer(monkeypatch: pytest.MonkeyPatch, kind: str, network: type) -> None:
    """Let `models/tokenizer/` hold a kind that only a test has."""
    module = types.ModuleType(f"{TOKENIZERS.package}.{kind}")
    module.Network = network  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(TOKENIZERS.kinds, kind, {"network": f"{kind}:Network"})  # type: ignore[arg-type]


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
        "milestones": [],
        "optimizer": "adamw",
        "betas": (0.9, 0.99),
        "weight_decay": 0.0,
        "clip_norm": 1.0,
        "ema_decay": 0.9,
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
        "ingest_processes": 1,
        "cache_gb": 20,
        "micro_batch": None,
        "activation_checkpointing": False,
        "accelerate": None,
        "max_lost_seconds": 1e9,
        "keep": 2,
        "changed_code": "restart",
        "checkpoints_to": None,
        "checkpoints_from": None,
        "grid_every": 0,
        "trackers": [],
    }
    return Run(**{**values, **changes})
