"""Stage `train_generator`: latents or codes in, `models/generator/` and its curves out.

Of the kind `none` nothing is trained: the folder says why.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from darkroom.artifacts.atomic import atomic_folder, require_writable
from darkroom.artifacts.manifest import file_hashes, write_manifest
from darkroom.artifacts.models import GENERATOR
from darkroom.errors import DarkroomError
from darkroom.models.generators.settings import NO_GENERATOR, Params
from darkroom.models.kinds import GENERATORS
from darkroom.stages.untrained import write_untrained
from darkroom.training.curves import write_curves
from darkroom.training.state import UNTRAINED, open_state

if TYPE_CHECKING:
    from darkroom.data.catalog import Catalog
    from darkroom.models.generators.recipe import GeneratorRecipe

OUT, CURVES, LOGS = Path("models/generator"), Path("curves/generator"), Path("logs/train_generator")


def _import(params: Params, catalog: Catalog, shape: Sequence[int], tokenizer: str) -> None:
    """Write published weights as the generator of latents of a shape; its curves have no point."""
    chosen = params.train_generator.chosen
    found: Any = GENERATORS.load("imported", params.train_generator.kind)(chosen, tuple(shape), list(catalog.classes))
    parameters = sum(p.numel() for p in found.model.parameters())
    print(f"{chosen.name or chosen.url or chosen.folder}: {parameters:,} parameters, not trained")
    write_curves(CURVES, [])
    with atomic_folder(OUT) as folder:
        found.model.save_pretrained(folder)
        write_manifest(
            folder,
            GENERATOR,
            generator_kind=params.train_generator.kind,
            classes=found.classes,
            image=catalog.spec.metadata(),
            latent_shape=list(shape),
            **found.metadata,
            tokenizer=tokenizer,
            catalog=catalog.fingerprint,
            images_seen=0,
            selected="last",
            best_validation=None,
            files=file_hashes(folder),
        )


def run(params: Params) -> None:
    """Train the generator that `kind` names, or import it, and write it: averaged weights, the raw ones in `raw/`."""
    for path in (OUT, CURVES):
        require_writable(path)
    if not params.train_generator.generates:
        write_untrained(OUT, CURVES, GENERATOR, NO_GENERATOR, "no generator is trained")
        return
    _train(params)


def _train(params: Params) -> None:
    # Imported here: no generator needs no torch.
    from darkroom.data.catalog import load_catalog
    from darkroom.data.latents import LatentShards
    from darkroom.device import set_up_device
    from darkroom.metrics.matching import FREQUENCY
    from darkroom.models.evaluators.evaluation import Evaluation
    from darkroom.models.generators.data import GeneratorData
    from darkroom.models.tokenizers.load import load_tokenizer
    from darkroom.training.averages import export_snapshots
    from darkroom.training.loop import train
    from darkroom.training.trainer import Places

    settings = params.train_generator
    training = settings.own_training
    device = set_up_device(training.threads, params.run.device)
    catalog = load_catalog(shards=None)
    tokenizer, tokenizer_hash = load_tokenizer(Path("models/tokenizer"), catalog.image_shape)
    parts = list(catalog.parts)
    shards = {split: LatentShards.open_parts(parts, split) for split in ("train", "val")}
    latents = shards["train"]
    catalog.require_parts(latents.sources)
    if latents.tokenizer != tokenizer_hash:
        raise DarkroomError(
            "data/latents was encoded by another tokenizer than models/tokenizer holds: encode it again "
            "(`dvc repro encode_latents`)."
        )
    if GENERATORS.has("imported", settings.kind):
        _import(params, catalog, latents.shape, tokenizer_hash)
        return
    with open_state("train_generator") as state:
        data = GeneratorData.open(
            settings.chosen.condition,
            Path(settings.embeddings),
            Path(settings.captions),
            shards,
            tokenizer.to(device),
            catalog,
            training.seed,
            settings.chosen.context_length,
        )
        recipe: GeneratorRecipe = GENERATORS.load("recipe", settings.kind).build(
            settings.chosen,
            training,
            data,
            Evaluation.open(settings.evaluate, catalog.image_shape, catalog.classes, FREQUENCY),
        )
        parameters = sum(p.numel() for p in recipe.model.parameters())
        what = "latents" if latents.codebook is None else f"latents, of {len(latents.codebook):,} codes"
        print(f"{settings.kind}: {parameters:,} parameters, {len(latents):,} {what}")
        facts = {
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
        if not int(os.environ.get("RANK", 0)):  # for `darkroom sample --weights CHECKPOINT`, until OUT is there
            with atomic_folder(state / UNTRAINED) as folder:
                recipe.save(folder)
                write_manifest(folder, GENERATOR, **facts, images_seen=0, files=file_hashes(folder))
        trainer = train(recipe, training, params.run, Places(state, CURVES, LOGS))
        with atomic_folder(OUT) as folder:
            trainer.save(folder, recipe.save)
            export_snapshots(state, recipe.name, folder / "profiles", training)
            facts |= {"images_seen": trainer.images, **trainer.metadata()}
            write_manifest(folder, GENERATOR, **facts, files=file_hashes(folder))
