"""Trainings of tiny generators of codes through the stage, also as one of several processes."""

import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from darkroom.models.generators import settings
from darkroom.params.section import validate
from darkroom.stages import train_generator
from helpers import run, training

READ = {"extractor": "models/extractor", "reference": "data/reference"}


def train(
    kind: str, condition: str = "class", loss: dict[str, Any] | None = None, processes: int = 1, dropout: float = 0.1
) -> dict[str, Any]:
    """Train a tiny generator of codes, and return its manifest."""
    embedded, guidance = condition in ("image", "text", "tokens"), 1.0 if condition == "none" else 2.0
    section = {
        "kind": kind,
        "training": training(images=64, batch=4, processes=processes).model_dump(),
        "embeddings": "data/embeddings" if embedded else "data/none",
        "captions": "data/shards" if condition == "caption" else "data/none",
        "evaluate": {"every": 32, "images": 8, "batch": 4, **READ},
        kind: {
            "model": {"width": 16, "depth": 1, "heads": 2, "condition": condition, "dropout": dropout},
            "loss": {"label_dropout": 0.3, **(loss or {})},
            "sampling": {"guidance": guidance},
        },
    }
    values = {"run": run(grid_every=64).model_dump(), "train_generator": section}
    train_generator.run(validate(settings.Params, values))
    return json.loads(Path("models/generator/manifest.json").read_text())


def member(_: Path, rank: int, count: int, clone: Path, kind: str, condition: str) -> None:
    """Train in a clone as one of `count` processes."""
    loss = {"order": "annealed"} if kind == "autoregressive" else {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(clone)
        patch.setattr("darkroom.training.stage.open_state", lambda stage, item=None: nullcontext(Path("state") / stage))
        train(kind, condition, loss, count, dropout=0.0)  # dropout's draws follow from the images of a process
