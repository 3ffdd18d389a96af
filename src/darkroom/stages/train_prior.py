"""Stage `train_prior`: embeddings in, `models/prior/` and its curves out."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from darkroom.artifacts.models import PRIOR as KIND
from darkroom.data.catalog import Catalog, load_catalog
from darkroom.data.embeddings import EmbeddingShards, captioned_parts, no_embeddings, stored
from darkroom.models.clip.settings import NO_CLIP
from darkroom.models.prior.settings import Params
from darkroom.training.stage import Job, Train, TrainingSpec, run_training

if TYPE_CHECKING:
    import torch

    from darkroom.diffusion.scalers import EmbeddingScaler
    from darkroom.models.prior.network import PriorConfig
    from darkroom.models.prior.recipe import PriorRecipe, Scorer
    from darkroom.training.recipe import IndexedDataset

_DIGITS = 6  # of a score in the manifest


def build(
    params: Params,
    config: PriorConfig,
    scaler: EmbeddingScaler,
    normalised: bool,
    train_rows: IndexedDataset,
    val_rows: IndexedDataset,
    scorer: Scorer | None = None,
) -> PriorRecipe:
    """Return the recipe with its untrained network; `scorer` scores it while it trains."""
    from darkroom.diffusion.objectives import objective_of
    from darkroom.models.prior.network import Prior, PriorNetwork
    from darkroom.models.prior.recipe import PriorRecipe
    from darkroom.rng import derive
    from darkroom.training.loop import seeded

    settings = params.train_prior
    with seeded(derive(settings.training.seed, "prior/weights")):
        network = PriorNetwork(config)
    network.set_scaler(scaler)
    prior = Prior(network, objective_of(settings.diffusion, settings.diffusion.timesteps), normalised)
    return PriorRecipe(prior, settings.diffusion, settings.training.seed, train_rows, val_rows, scorer)


def config_of(params: Params, dim: int, encoding_shape: tuple[int, int] | None) -> PriorConfig:
    """Return the shape of a prior for embeddings of a length and encodings of a shape."""
    from darkroom.models.prior.network import PriorConfig

    return PriorConfig(dim, encoding_shape, **params.train_prior.model.model_dump())


def run(params: Params, train: Train | None = None) -> None:
    """Train the prior, write it, averaged weights and the raw ones in `raw/`, and score it."""
    catalog = load_catalog(shards=None)
    idle, parts = _learnt_from(list(catalog.parts))
    training, opened = params.train_prior.training, partial(_open, params, catalog, parts)
    run_training(TrainingSpec("train_prior", training, params.run, opened, idle, "no prior is trained"), train)


def _learnt_from(parts: Sequence[str]) -> tuple[str | None, Sequence[str]]:
    """Return why there is nothing to learn from, or None, and the parts with captions."""
    if no_embeddings(parts):
        return NO_CLIP, ()
    if missing := [split for split in ("train", "val") if not all(stored(part, split) for part in parts)]:
        return f"`embed_clip.store` leaves out the embeddings of {' and '.join(missing)}, which a prior learns from", ()
    captioned = captioned_parts(parts)
    return None if captioned else "no image has a caption", captioned


def _open(params: Params, catalog: Catalog, parts: Sequence[str], device: torch.device) -> Job:
    from darkroom.diffusion.scalers import EmbeddingScaler, spaced_rows
    from darkroom.models.prior.recipe import CaptionedEmbeddings, Scorer, require_texts
    from darkroom.training.initial import initial_manifest, require_same

    settings, training = params.train_prior, params.train_prior.training
    splits = ("train", "val", settings.evaluate.split)
    shards = {split: EmbeddingShards.open_parts(parts, split) for split in dict.fromkeys(splits)}
    first = shards["train"]
    catalog.require_parts(first.sources)
    rows = {split: CaptionedEmbeddings(each) for split, each in shards.items()}
    require_texts(rows["train"])
    of_clip = {"clip": first.clip, "normalised": first.normalised}
    begun = initial_manifest(training.init.folder, KIND)
    require_same("train_prior.training.init.folder", begun, of_clip, tuple(of_clip))
    scorer = Scorer(rows["val"], settings.evaluate, training.validate_every)
    recipe = build(
        params,
        config_of(params, first.dim, first.encoding_shape),
        EmbeddingScaler.of(first.__getitems__(spaced_rows(len(first)))["image"], settings.diffusion.normalise),
        first.normalised,
        rows["train"],
        rows["val"],
        scorer if scorer.count > 1 else None,
    )
    model = recipe.model
    print(f"{sum(p.numel() for p in model.parameters()):,} parameters, {len(rows['train']):,} captioned images")

    def measure(*_: Path) -> dict[str, Any]:
        model.eval().to(device)
        split, last = settings.evaluate.split, Scorer(rows[settings.evaluate.split], settings.evaluate, 0)
        scores = {name: float(f"{value:.{_DIGITS}g}") for name, value in last.scores(recipe.prior).items()}
        described = "  ".join(f"{name} {value:.4g}" for name, value in scores.items())
        print(f"{split}, {last.count:,} images: {described}")
        return {"scores": {"split": split, "images": last.count, **scores}}

    metadata = {
        "trained": True,
        **of_clip,
        "embed_dim": first.dim,
        "text_shape": first.encoding_shape,
        **settings.diffusion.prediction(),
        "catalog": catalog.fingerprint,
    }
    return Job(model.save_pretrained, metadata, recipe, raw=True, kept=True, measure=measure)
