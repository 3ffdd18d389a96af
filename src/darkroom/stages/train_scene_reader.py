"""Stage `train_scene_reader`: train the scene reader on renders, and write `models/scene_reader/` and its curves.

It never trains other networks. If no score needs it, it is not trained, and the folder says why.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from darkroom.models.evaluators.settings import SceneReaderParams
from darkroom.training.stage import Job, Train, run_training

if TYPE_CHECKING:
    import torch

    from darkroom.models.evaluators.scene_reader import Renders


def renders(params: SceneReaderParams, split: str) -> Renders:
    """Return the renders of a split; the train split has one per image of the training, so that none repeats."""
    from darkroom.models.evaluators.scene_reader import Renders

    settings = params.train_scene_reader
    count = settings.training.images if split == "train" else settings.held_out
    return Renders(settings.training.seed, split, count, params.ingest.image_size, settings.kinds)


def run(params: SceneReaderParams, train: Train | None = None) -> None:
    """Train the reader, and write its averaged weights and its accuracy on unseen renders."""
    settings, opened = params.train_scene_reader, partial(_open, params)
    consequence = "no scene reader is trained"
    run_training("train_scene_reader", settings.training, params.run, opened, train, params.idle, consequence)


def _open(params: SceneReaderParams, device: torch.device) -> Job:
    from darkroom.data.images import ImageSpec
    from darkroom.models.evaluators.scene_reader import WORDS, SceneReader, SceneReaderRecipe, accuracy
    from darkroom.rng import derive
    from darkroom.training.loop import seeded

    settings = params.train_scene_reader
    spec = ImageSpec(params.ingest.image_size, params.ingest.channels, "png")
    seed, rows = settings.training.seed, (renders(params, split) for split in ("train", "val"))
    with seeded(derive(seed, "scene_reader/weights")):
        model = SceneReader(WORDS, settings.model.channels, settings.model.layers)
    recipe = SceneReaderRecipe(model, settings.augment, seed, *rows)
    print(f"{sum(p.numel() for p in recipe.model.parameters()):,} parameters, {settings.training.images:,} renders")

    def measure() -> dict[str, Any]:
        fractions = accuracy(recipe.model, renders(params, "test"), settings.training.batch, device)
        print("  ".join(f"{name} {fraction:.4f}" for name, fraction in fractions.items()))
        return {"accuracy": fractions}

    metadata = {
        "trained": True,
        "image_shape": list(spec.shape),
        "kinds": settings.kinds,
        "held_out": settings.held_out,
    }
    return Job(recipe.model.save_pretrained, metadata, recipe, measure=measure)
