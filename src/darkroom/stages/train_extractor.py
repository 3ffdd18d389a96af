"""Stage `train_extractor`: train the feature network of the scores, and write `models/extractor/` and its curves."""

from functools import partial

import numpy as np
import torch

from darkroom.data.catalog import load_catalog
from darkroom.data.reader import ImageShards
from darkroom.models.evaluators.extractor import Classifier, ExtractorRecipe
from darkroom.models.evaluators.settings import ExtractorParams
from darkroom.rng import derive
from darkroom.training.data import LabelledImages
from darkroom.training.loop import seeded
from darkroom.training.stage import Job, Train, run_training


def run(params: ExtractorParams, train: Train | None = None) -> None:
    """Train the classifier and write it with its averaged weights."""
    settings, opened = params.train_extractor, partial(_open, params)
    run_training("train_extractor", settings.training, params.run, opened, train)


def _open(params: ExtractorParams, device: torch.device) -> Job:
    settings, catalog = params.train_extractor, load_catalog()
    train_set, val_set = (
        LabelledImages(
            ImageShards.open_parts(list(catalog.parts), split), catalog, settings.training.seed, "`train_extractor`"
        )
        for split in ("train", "val")
    )
    counts = np.bincount(train_set.labels, minlength=len(catalog.classes)).tolist()
    with seeded(derive(settings.training.seed, "extractor/weights")):
        model = Classifier(catalog.image_shape[0], len(catalog.classes), **settings.model.model_dump())
    recipe = ExtractorRecipe(model, train_set, val_set, counts if settings.balanced else None)
    print(f"{sum(p.numel() for p in recipe.model.parameters()):,} parameters, {len(train_set):,} images")
    metadata = {
        "image_shape": list(catalog.image_shape),
        "classes": list(catalog.classes),
        "balanced": settings.balanced,
        "catalog": catalog.fingerprint,
    }
    return Job(recipe.model.save_pretrained, metadata, recipe)
