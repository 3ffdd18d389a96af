"""Stage `train_distilled`: distil a trained generator, and write `models/distilled/` and its curves.

If distillation is off, nothing is trained, and the folder says why.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from darkroom.artifacts.manifest import manifest_hash
from darkroom.artifacts.models import generator_manifest
from darkroom.errors import DarkroomError
from darkroom.models.generators.sample_settings import Common
from darkroom.models.generators.settings import DistilledParams
from darkroom.training.stage import Job, Train, run_training

if TYPE_CHECKING:
    import torch

MODEL = Path("models/generator")
# Keys of the generator's manifest that also describe the distilled network.
_KEPT = (
    *("generator_kind", "classes", "class_counts", "condition", "context_length", "parts", "clip", "normalised"),
    *("image", "latent_shape", "latent_mean", "latent_std", "objective", "prediction", "tokenizer", "catalog"),
)


def run(params: DistilledParams, train: Train | None = None) -> None:
    """Distil the generator as sampled by `sample_generator.dit`, and write averaged weights."""
    settings, opened = params.train_distilled, partial(_open, params)
    consequence = "the generator draws with all of its calls"
    run_training("train_distilled", settings.training, params.run, opened, train, params.idle, consequence)


def _open(params: DistilledParams, device: torch.device) -> Job:
    from darkroom.data.catalog import load_catalog
    from darkroom.data.latents import LatentShards
    from darkroom.diffusion.flow import Flow
    from darkroom.models.generators.data import GeneratorData
    from darkroom.models.generators.dit.distilled import DistilledRecipe
    from darkroom.models.generators.dit.sample import DiTSampler
    from darkroom.models.generators.load import open_generator

    settings, conditions = params.train_distilled, params.train_generator
    training = settings.training
    catalog = load_catalog(shards=None)
    manifest = generator_manifest(MODEL)
    shards = {split: LatentShards.open_parts(list(catalog.parts), split) for split in ("train", "val")}
    catalog.require_parts(shards["train"].sources)
    if shards["train"].tokenizer != manifest["tokenizer"]:
        raise DarkroomError(
            f"data/latents was encoded by another tokenizer than {MODEL} was trained with: train it again (`dvc repro "
            "train_generator`)."
        )
    teacher, sampling = open_generator(MODEL, manifest, params.sample_generator, Common(), device)
    if not isinstance(teacher, DiTSampler) or not isinstance(teacher.objective, Flow):
        raise DarkroomError(f"{MODEL} holds no flow, but only flows are distilled: set `train_distilled.kind` to none.")
    data = GeneratorData.open(
        manifest.get("condition", "class"),
        Path(conditions.embeddings),
        Path(conditions.captions),
        shards,
        teacher.tokenizer,
        catalog,
        training.seed,
        manifest.get("context_length"),
    )
    recipe = DistilledRecipe(teacher, sampling, settings.calls, training, data)
    if data.embeddings is not None and data.metadata() | manifest != manifest:
        raise DarkroomError(
            f"data/embeddings was made by another CLIP than {MODEL} was trained with, or with another "
            "`embed_clip.normalise`: train it again (`dvc repro train_generator`)."
        )
    steps, calls = sum(len(way) - 1 for way in recipe.ways), f"{settings.calls} call{'s' * (settings.calls > 1)}"
    parameters = sum(p.numel() for p in recipe.model.parameters())
    print(f"{steps} steps of {sampling.solver} into {calls}: {parameters:,} parameters")
    metadata = {
        "trained": True,
        **{name: manifest[name] for name in _KEPT if name in manifest},
        "calls": settings.calls,
        "generator": manifest_hash(MODEL),
    }
    return Job(recipe.model.save_pretrained, metadata, recipe)
