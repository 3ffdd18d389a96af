"""Stage `train_prior`: embeddings in, `models/prior/` and its curves out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from darkroom.artifacts.atomic import atomic_folder, require_writable
from darkroom.artifacts.manifest import file_hashes, write_manifest
from darkroom.artifacts.models import PRIOR as KIND
from darkroom.artifacts.models import PRIOR_FOLDER
from darkroom.data.catalog import Catalog, load_catalog
from darkroom.data.embeddings import EmbeddingShards, captioned_parts, no_embeddings, stored
from darkroom.models.clip.settings import NO_CLIP
from darkroom.models.prior.settings import Params
from darkroom.stages.untrained import write_untrained
from darkroom.training.state import open_state

if TYPE_CHECKING:
    from darkroom.diffusion.scalers import EmbeddingScaler
    from darkroom.models.prior.network import PriorConfig
    from darkroom.models.prior.recipe import PriorRecipe
    from darkroom.models.prior.scores import Scorer
    from darkroom.training.recipe import IndexedDataset

OUT, CURVES, LOGS = PRIOR_FOLDER, Path("curves/prior"), Path("logs/train_prior")
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
    from darkroom.models.prior.network import PriorNetwork
    from darkroom.models.prior.recipe import PriorRecipe
    from darkroom.models.prior.sample import Prior
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


def run(params: Params) -> None:
    """Train the prior, write it, averaged weights and the raw ones in `raw/`, and tell how near it comes."""
    for path in (OUT, CURVES):
        require_writable(path)
    catalog = load_catalog(shards=None)
    if no_embeddings(list(catalog.parts)):
        write_untrained(OUT, CURVES, KIND, NO_CLIP, "no prior is trained")
        return
    if missing := [split for split in ("train", "val") if not all(stored(part, split) for part in catalog.parts)]:
        reason = f"`embed_clip.store` leaves out the embeddings of {' and '.join(missing)}, which a prior learns from"
        write_untrained(OUT, CURVES, KIND, reason, "no prior is trained")
        return
    if not (parts := captioned_parts(list(catalog.parts))):
        write_untrained(OUT, CURVES, KIND, "no image has a caption", "no prior is trained")
        return
    _train(params, catalog, parts)


def _train(params: Params, catalog: Catalog, parts: Sequence[str]) -> None:
    # Imported here: nothing to train needs no torch.
    from darkroom.device import set_up_device
    from darkroom.diffusion.scalers import EmbeddingScaler, spaced_rows
    from darkroom.models.prior.data import CaptionedEmbeddings, require_texts
    from darkroom.models.prior.scores import Scorer
    from darkroom.training.initial import initial_manifest, require_same
    from darkroom.training.loop import train
    from darkroom.training.trainer import Places

    settings, training = params.train_prior, params.train_prior.training
    device = set_up_device(training.threads, params.run.device)
    splits = ("train", "val", settings.evaluate.split)
    shards = {split: EmbeddingShards.open_parts(parts, split) for split in dict.fromkeys(splits)}
    first = shards["train"]
    catalog.require_parts(first.sources)
    rows = {split: CaptionedEmbeddings(each) for split, each in shards.items()}
    require_texts(rows["train"])
    metadata = {"clip": first.clip, "normalised": first.normalised}
    begun = initial_manifest(training.init.folder, KIND)
    require_same("train_prior.training.init.folder", begun, metadata, tuple(metadata))
    with open_state("train_prior") as state:
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
        trainer = train(recipe, training, params.run, Places(state, CURVES, LOGS))
        last = Scorer(rows[settings.evaluate.split], settings.evaluate, 0)
        with atomic_folder(OUT) as folder:
            trainer.save(folder, model.save_pretrained)
            with trainer.averaged():
                model.eval().to(device)
                found = last.scores(recipe.prior)
            scores = {name: float(f"{value:.{_DIGITS}g}") for name, value in found.items()}
            write_manifest(
                folder,
                KIND,
                trained=True,
                **metadata,
                embed_dim=first.dim,
                text_shape=first.encoding_shape,
                **settings.diffusion.prediction(),
                scores={"split": settings.evaluate.split, "images": last.count, **scores},
                catalog=catalog.fingerprint,
                images_seen=trainer.images,
                **trainer.metadata(),
                files=file_hashes(folder),
            )
        told = "  ".join(f"{name} {value:.4g}" for name, value in scores.items())
        print(f"{settings.evaluate.split}, {last.count:,} images: {told}")
