"""Stage `train_extractor`: shards in, `models/extractor/` and its curves out. The evaluator of the scores."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from darkroom.artifacts.atomic import atomic_folder, require_writable
from darkroom.artifacts.manifest import file_hashes, write_manifest
from darkroom.data.catalog import load_catalog
from darkroom.data.reader import ImageShards
from darkroom.device import set_up_device
from darkroom.models.evaluators.extractor.network import Classifier
from darkroom.models.evaluators.extractor.recipe import ExtractorRecipe
from darkroom.models.evaluators.extractor.settings import Params
from darkroom.rng import derive
from darkroom.training.data import LabelledImages
from darkroom.training.loop import seeded, train
from darkroom.training.recipe import IndexedDataset
from darkroom.training.state import open_state
from darkroom.training.trainer import Places

OUT, CURVES, LOGS = Path("models/extractor"), Path("curves/extractor"), Path("logs/train_extractor")


def build(
    params: Params,
    image_shape: tuple[int, int, int],
    classes: int,
    train_rows: IndexedDataset,
    val_rows: IndexedDataset,
    counts: Sequence[int] | None = None,
) -> ExtractorRecipe:
    """Return the recipe with its untrained network, for images of shape (C, H, W) of so many classes.

    counts: images of each class in the train split; None: unknown.
    """
    settings = params.train_extractor
    with seeded(derive(settings.training.seed, "extractor/weights")):
        model = Classifier(
            in_channels=image_shape[0],
            channels=settings.model.channels,
            features=settings.model.features,
            classes=classes,
            dropout=settings.model.dropout,
        )
    return ExtractorRecipe(model, train_rows, val_rows, counts if settings.balanced else None)


def run(params: Params) -> None:
    """Train the classifier and write it with its averaged weights."""
    settings = params.train_extractor
    for path in (OUT, CURVES):
        require_writable(path)
    set_up_device(settings.training.threads, params.run.device)
    catalog = load_catalog()
    parts = list(catalog.parts)
    train_set, val_set = (
        LabelledImages(ImageShards.open_parts(parts, split), catalog, settings.training.seed, "`train_extractor`")
        for split in ("train", "val")
    )
    with open_state("train_extractor") as state:
        counts = np.bincount(train_set.labels, minlength=len(catalog.classes)).tolist()
        recipe = build(params, catalog.image_shape, len(catalog.classes), train_set, val_set, counts)
        model = recipe.model
        print(f"{sum(p.numel() for p in model.parameters()):,} parameters, {len(train_set):,} images")
        trainer = train(recipe, settings.training, params.run, Places(state, CURVES, LOGS))
        with trainer.averaged(), atomic_folder(OUT) as folder:
            model.save_pretrained(folder)
            write_manifest(
                folder,
                "extractor",
                image_shape=list(catalog.image_shape),
                classes=list(catalog.classes),
                balanced=settings.balanced,
                catalog=catalog.fingerprint,
                images_seen=trainer.images,
                **trainer.metadata(),
                files=file_hashes(folder),
            )
