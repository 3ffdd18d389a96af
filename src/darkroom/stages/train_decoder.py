"""Stage `train_decoder@UNET`: train one U-Net of the decoder, and write `models/decoder/UNET/` and its curves."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from darkroom.artifacts.manifest import read_manifest
from darkroom.artifacts.models import CLIP
from darkroom.artifacts.models import DECODER as KIND
from darkroom.data.catalog import Catalog, load_catalog
from darkroom.models.clip.settings import NO_CLIP
from darkroom.models.decoder.settings import Params
from darkroom.models.decoder.unet_settings import UNet
from darkroom.params.section import NO_FILE
from darkroom.training.stage import Job, Train, run_training

if TYPE_CHECKING:
    import torch

    from darkroom.models.decoder.opening import DecoderData
    from darkroom.models.decoder.recipe import DecoderRecipe
    from darkroom.models.evaluators.evaluation import UNetEvaluation


def build(params: Params, name: str, opened: DecoderData, evaluation: UNetEvaluation | None = None) -> DecoderRecipe:
    """Return the recipe with its untrained U-Net."""
    from darkroom.diffusion.objectives import objective_of
    from darkroom.models.decoder.network import DecoderUNet
    from darkroom.models.decoder.opening import config_of
    from darkroom.models.decoder.recipe import DecoderRecipe
    from darkroom.rng import derive
    from darkroom.training.loop import seeded

    section = params.train_decoder
    settings, training = section.unets[name], section.training_of(name)
    with seeded(derive(training.seed, "decoder/weights")):
        model = DecoderUNet(config_of(settings, opened))
    objective = objective_of(settings.diffusion, section.timesteps)
    rows = opened.rows
    return DecoderRecipe(
        model,
        settings,
        objective,
        opened.space,
        opened.conditioner,
        training.seed,
        rows["train"],
        rows["val"],
        evaluation,
    )


def run(params: Params, name: str, train: Train | None = None) -> None:
    """Train one U-Net of the cascade, and write its averaged weights, with raw ones in `raw/`.

    A frozen one is written with the weights that `weights` names, or without weights.
    """
    catalog = load_catalog(shards=None)
    idle, left_out = _idle(params.train_decoder.unets[name], [*catalog.parts]), "this U-Net is left out of the cascade"
    training, opened = params.train_decoder.training_of(name), partial(_open, params, name, catalog)
    run_training("train_decoder", training, params.run, opened, train, idle, left_out, name)


def _idle(settings: UNet, parts: Sequence[str]) -> str | None:
    if settings.frozen and settings.weights == NO_FILE:
        return "`frozen` is true"
    return NO_CLIP if _lacks_clip(settings, parts) else None


def _open(params: Params, name: str, catalog: Catalog, device: torch.device) -> Job:
    from darkroom.models.decoder.opening import open_data, weights_key
    from darkroom.models.evaluators.evaluation import UNetEvaluation
    from darkroom.training.initial import initial_manifest, initialise, require_same

    section = params.train_decoder
    settings, training = section.unets[name], section.training_of(name)
    opened = open_data(section, name, catalog, device)
    evaluation = UNetEvaluation.open(section.evaluate, catalog, len(opened.rows["val"]), device)
    metadata = {
        "image": catalog.spec.metadata(),
        "catalog": catalog.fingerprint,
        "trained": True,
        "size": settings.size,
        "low_size": settings.low_size,
        "low_downsample": settings.low.downsample,
        "timesteps": section.timesteps,
        **settings.diffusion.prediction(),
        **opened.metadata,
    }
    recipe = build(params, name, opened, evaluation)
    model = recipe.model
    print(f"{sum(p.numel() for p in model.parameters()):,} parameters, {len(recipe.train):,} images")
    if not settings.frozen:
        return Job(model.save_pretrained, metadata, recipe, raw=True, kept_weights=True)
    begun = initial_manifest(settings.weights, KIND)
    require_same(weights_key(name), begun, metadata, ("size", "low_size", "timesteps", "objective", "prediction"))
    initialise({"unet": model}, training.init)
    return Job(model.save_pretrained, metadata | {"images_seen": 0}, raw=True)


def _lacks_clip(settings: UNet, parts: Sequence[str]) -> bool:
    if settings.clip != NO_FILE:
        return read_manifest(Path(settings.clip), CLIP)["weights"] is None
    if settings.embeddings == NO_FILE:
        return False
    from darkroom.data.embeddings import no_embeddings

    return no_embeddings(parts, Path(settings.embeddings))
