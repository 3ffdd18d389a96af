"""Stage `train_classifier`: train the classifier of noisy latents, and write `models/classifier/` and its curves.

It never scores. If it guides no samples, it is not trained, and the folder says why.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from darkroom.models.generators.settings import ClassifierParams
from darkroom.training.stage import Job, Train, run_training

if TYPE_CHECKING:
    import torch


def run(params: ClassifierParams, train: Train | None = None) -> None:
    """Train the classifier on the generator's latents, under its noise, and write it with its averaged weights."""
    settings, opened = params.train_classifier, partial(_open, params)
    consequence = "no classifier of noisy latents is trained"
    run_training("train_classifier", settings.training, params.run, opened, train, params.idle, consequence)


def _open(params: ClassifierParams, device: torch.device) -> Job:
    from darkroom.data.catalog import load_catalog
    from darkroom.data.latents import LatentShards
    from darkroom.diffusion.scalers import LatentScaler
    from darkroom.models.generators.data import LabelledLatents
    from darkroom.models.generators.dit.classifier import Classifier, ClassifierConfig, ClassifierRecipe
    from darkroom.rng import derive
    from darkroom.training.loop import seeded

    settings, seed = params.train_classifier, params.train_classifier.training.seed
    catalog = load_catalog(shards=None)
    shards = [LatentShards.open_parts(list(catalog.parts), split) for split in ("train", "val")]
    latents = shards[0]
    catalog.require_parts(latents.sources)
    diffusion = params.train_generator.dit.diffusion
    mean, std = diffusion.scale(*latents.statistics, latents.principal_deviation)
    channels, size, _ = latents.shape
    classes = list(catalog.classes)
    with seeded(derive(seed, "classifier/weights")):
        model = Classifier(ClassifierConfig(channels, size, len(classes), **settings.model.model_dump()))
    train_rows, val_rows = (LabelledLatents(split, catalog, seed) for split in shards)
    recipe = ClassifierRecipe(model, diffusion, seed, train_rows, val_rows, LatentScaler(mean, std))
    print(f"{sum(p.numel() for p in model.parameters()):,} parameters, {len(latents):,} latents")
    metadata = {
        "trained": True,
        "classes": classes,
        "latent_shape": list(latents.shape),
        "latent_mean": mean,
        "latent_std": std,
        **diffusion.prediction(),
        "tokenizer": latents.tokenizer,
    }
    return Job(model.save_pretrained, metadata, recipe)
