"""Stage `train_prior`: train the prior on embeddings, and write `models/prior/` and its curves."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from darkroom.artifacts.models import PRIOR as KIND
from darkroom.data.catalog import Catalog, load_catalog
from darkroom.data.embeddings import EmbeddingShards, captioned_parts, no_embeddings, stored
from darkroom.models.clip.settings import NO_CLIP
from darkroom.models.prior.settings import Params
from darkroom.training.stage import Job, Train, run_training

if TYPE_CHECKING:
    import torch

_DIGITS = 6  # of a score in the manifest


def run(params: Params, train: Train | None = None) -> None:
    """Train the prior, write averaged weights, with raw ones in `raw/`, and score it."""
    catalog = load_catalog(shards=None)
    idle, parts = _learnt_from(list(catalog.parts))
    training, opened = params.train_prior.training, partial(_open, params, catalog, parts)
    run_training("train_prior", training, params.run, opened, train, idle, "no prior is trained")


def _learnt_from(parts: Sequence[str]) -> tuple[str | None, Sequence[str]]:
    """Return why there is nothing to learn from, or None, and the parts with captions."""
    if no_embeddings(parts):
        return NO_CLIP, ()
    if missing := [split for split in ("train", "val") if not all(stored(part, split) for part in parts)]:
        return f"`embed_clip.store` leaves out the embeddings of {' and '.join(missing)}, which a prior learns from", ()
    captioned = captioned_parts(parts)
    return None if captioned else "no image has a caption", captioned


def _open(params: Params, catalog: Catalog, parts: Sequence[str], device: torch.device) -> Job:
    from darkroom.diffusion.objectives import objective_of
    from darkroom.diffusion.scalers import EmbeddingScaler, spaced_rows
    from darkroom.models.prior.network import Prior, PriorConfig, PriorNetwork
    from darkroom.models.prior.recipe import CaptionedEmbeddings, PriorRecipe, Scorer, require_texts
    from darkroom.rng import derive
    from darkroom.training.initial import initial_manifest, require_same
    from darkroom.training.loop import seeded

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
    diffusion = settings.diffusion
    with seeded(derive(training.seed, "prior/weights")):
        model = PriorNetwork(PriorConfig(first.dim, first.encoding_shape, **settings.model.model_dump()))
    model.set_scaler(EmbeddingScaler.of(first.__getitems__(spaced_rows(len(first)))["image"]))
    prior = Prior(model, objective_of(diffusion, diffusion.timesteps), first.normalised)
    recipe = PriorRecipe(
        prior, diffusion, training.seed, rows["train"], rows["val"], scorer if scorer.count > 1 else None
    )
    print(f"{sum(p.numel() for p in model.parameters()):,} parameters, {len(rows['train']):,} captioned images")

    def measure() -> dict[str, Any]:
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
        **diffusion.prediction(),
        "catalog": catalog.fingerprint,
    }
    return Job(model.save_pretrained, metadata, recipe, raw=True, kept_weights=True, measure=measure)
