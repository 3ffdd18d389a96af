"""Stage `train_dit`: latents in, `models/dit/` and its curves out."""

from pathlib import Path

import torch
from torch import Tensor

from darkroom.artifacts.atomic import atomic_folder, require_writable
from darkroom.artifacts.manifest import file_hashes, write_manifest
from darkroom.data.catalog import load_catalog
from darkroom.data.latents import LatentShards
from darkroom.device import set_up_device
from darkroom.errors import DarkroomError
from darkroom.models.generators.dit.network import DiT, DiTConfig
from darkroom.models.generators.dit.recipe import DiTRecipe, LabelledLatents
from darkroom.models.generators.dit.settings import Params
from darkroom.models.generators.evaluation import Evaluation
from darkroom.models.generators.normaliser import Normaliser
from darkroom.models.tokenizers.load import load_tokenizer
from darkroom.models.tokenizers.protocol import Tokenizer
from darkroom.random import derive
from darkroom.training.loop import seeded, train
from darkroom.training.profiles import export
from darkroom.training.recipe import Rows
from darkroom.training.state import open_state
from darkroom.training.trainer import Places

OUT, CURVES, LOGS = Path("models/dit"), Path("curves/dit"), Path("logs/train_dit")


def build(
    params: Params,
    classes: int,
    normaliser: Normaliser,
    tokenizer: Tokenizer,
    train_rows: Rows,
    val_rows: Rows,
    evaluation: Evaluation | None = None,
    codebook: Tensor | None = None,
) -> DiTRecipe:
    """Return the recipe with its untrained network, for latents of a tokenizer and so many classes.

    `codebook` is what the latents stand for where they are codes, float32 (K, C).
    """
    settings = params.train_dit
    channels, size, _ = tokenizer.latent_shape
    with seeded(derive(settings.training.seed, "dit/weights")):
        model = DiT(DiTConfig(channels, size, classes, **settings.model.model_dump()))
    seed = settings.training.seed
    return DiTRecipe(model, settings.diffusion, seed, train_rows, val_rows, normaliser, tokenizer, evaluation, codebook)


def run(params: Params) -> None:
    """Train the transformer and write it: averaged weights, and the raw ones in `raw/`."""
    settings = params.train_dit
    for path in (OUT, CURVES):
        require_writable(path)
    device = set_up_device(settings.training.threads, params.run.device)
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
    with open_state("train_dit") as state:
        rows = [LabelledLatents(shards[split], catalog, settings.training.seed) for split in ("train", "val")]
        mean, std = latents.statistics
        if settings.diffusion.normalise == "principal":
            widest = latents.principal_deviation()
            std = [each * widest for each in std]
        normaliser, tokenizer = Normaliser(mean, std), tokenizer.to(device)
        evaluation = Evaluation.open(settings.evaluate, tokenizer, normaliser, catalog)
        codebook = None if latents.codebook is None else torch.from_numpy(latents.codebook)
        recipe = build(params, len(catalog.classes), normaliser, tokenizer, rows[0], rows[1], evaluation, codebook)
        model = recipe.model
        what = "latents" if codebook is None else f"latents, of {len(codebook):,} codes"
        print(f"{sum(p.numel() for p in model.parameters()):,} parameters, {len(latents):,} {what}")
        trainer = train(recipe, settings.training, params.run, Places(state, CURVES, LOGS))
        with atomic_folder(OUT) as folder:
            model.save_pretrained(folder / "raw")
            with trainer.averaged():
                model.save_pretrained(folder)
            export(state, "dit", folder / "profiles", settings.training)
            write_manifest(
                folder,
                "dit",
                classes=list(catalog.classes),
                image=catalog.spec.facts(),
                latent_shape=list(latents.shape),
                latent_mean=mean,
                latent_std=std,
                tokenizer=tokenizer_hash,
                catalog=catalog.identity,
                images_seen=trainer.images,
                **trainer.facts(),
                files=file_hashes(folder),
            )
