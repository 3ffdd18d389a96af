"""Stage `train_generator`: train the generator, and write `models/generator/` and its curves.

For the kind `none` nothing is trained, and the folder says why.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from darkroom.artifacts.atomic import atomic_folder
from darkroom.artifacts.manifest import file_hashes, write_manifest
from darkroom.artifacts.models import GENERATOR
from darkroom.errors import DarkroomError
from darkroom.models.generators.settings import NO_GENERATOR, Params
from darkroom.models.kinds import GENERATORS
from darkroom.training.stage import NOT_TRAINED, Job, Train, run_training
from darkroom.training.state import UNTRAINED

if TYPE_CHECKING:
    import torch

    from darkroom.data.catalog import Catalog
    from darkroom.models.generators.recipe import GeneratorRecipe


def run(params: Params, train: Train | None = None) -> None:
    """Train or import the generator that `kind` names, and write averaged weights, with raw ones in `raw/`."""
    settings, opened = params.train_generator, partial(_open, params)
    idle = None if settings.generates else NO_GENERATOR
    run_training("train_generator", settings.own_training, params.run, opened, train, idle, "no generator is trained")


def _open(params: Params, device: torch.device) -> Job:
    from darkroom.data.catalog import load_catalog
    from darkroom.data.latents import LatentShards
    from darkroom.models.evaluators.evaluation import Evaluation
    from darkroom.models.generators.data import GeneratorData
    from darkroom.models.tokenizers.protocol import load_tokenizer

    settings, training = params.train_generator, params.train_generator.own_training
    catalog = load_catalog(shards=None)
    tokenizer, tokenizer_hash = load_tokenizer(Path("models/tokenizer"), catalog.image_shape)
    shards = {split: LatentShards.open_parts(list(catalog.parts), split) for split in ("train", "val")}
    latents = shards["train"]
    catalog.require_parts(latents.sources)
    if latents.tokenizer != tokenizer_hash:
        raise DarkroomError(
            "data/latents was encoded by another tokenizer than models/tokenizer holds: encode it again "
            "(`dvc repro encode_latents`)."
        )
    if GENERATORS.has("imported", settings.kind):
        return _import(params, catalog, latents.shape, tokenizer_hash)
    data = GeneratorData.open(
        settings.chosen.condition,
        Path(settings.embeddings),
        Path(settings.captions),
        shards,
        tokenizer.to(device),
        catalog,
        training.seed,
        settings.chosen.context_length,
        settings.chosen.codes,
    )
    recipe: GeneratorRecipe = GENERATORS.load("recipe", settings.kind).build(
        settings.chosen,
        training,
        data,
        Evaluation.open(settings.evaluate, catalog.image_shape, catalog.classes),
    )
    parameters = sum(p.numel() for p in recipe.model.parameters())
    of_codes = "" if latents.codebook is None else f", of {len(latents.codebook):,} codes"
    print(f"{settings.kind}: {parameters:,} parameters, {len(latents):,} latents{of_codes}")
    metadata = {
        "generator_kind": settings.kind,
        "classes": list(catalog.classes),
        **({} if data.class_counts is None else {"class_counts": data.class_counts}),
        **({} if (condition := settings.chosen.condition) == "class" else {"condition": condition}),
        **data.metadata(),
        "image": catalog.spec.metadata(),
        "latent_shape": list(latents.shape),
        "label_dropout": settings.chosen.label_dropout,
        **recipe.metadata(),
        "tokenizer": tokenizer_hash,
        "catalog": catalog.fingerprint,
    }

    def write_initial(state: Path) -> None:
        """Write the network for `darkroom sample --weights CHECKPOINT`, until models/generator exists."""
        with atomic_folder(state / UNTRAINED) as folder:
            recipe.save(folder)
            write_manifest(folder, GENERATOR, **metadata, images_seen=0, files=file_hashes(folder))

    return Job(recipe.save, metadata, recipe, raw=True, kept_weights=True, prepare=write_initial)


def _import(params: Params, catalog: Catalog, shape: Sequence[int], tokenizer: str) -> Job:
    chosen = params.train_generator.chosen
    imported: Any = GENERATORS.load("imported", params.train_generator.kind)(chosen, tuple(shape), [*catalog.classes])
    parameters = sum(p.numel() for p in imported.model.parameters())
    print(f"{chosen.name or chosen.url or chosen.folder}: {parameters:,} parameters, not trained")
    metadata = {
        "generator_kind": params.train_generator.kind,
        "classes": imported.classes,
        "image": catalog.spec.metadata(),
        "latent_shape": list(shape),
        **imported.metadata,
        "tokenizer": tokenizer,
        "catalog": catalog.fingerprint,
        **NOT_TRAINED,
    }
    return Job(imported.model.save_pretrained, metadata)
