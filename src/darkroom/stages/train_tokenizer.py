"""Stage `train_tokenizer`: train the tokenizer on the chosen parts, and write `models/tokenizer/` and its curves."""

from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from darkroom.data.catalog import Selection, load_selection
from darkroom.data.reader import ImageShards
from darkroom.models.kinds import TOKENIZERS
from darkroom.models.tokenizers.protocol import Tokenizer
from darkroom.models.tokenizers.recipe import TokenizerRecipe
from darkroom.models.tokenizers.settings import Params
from darkroom.rng import derive
from darkroom.training.data import Classes, Images, LabelledImages
from darkroom.training.initial import initialise
from darkroom.training.loop import seeded
from darkroom.training.recipe import IndexedDataset
from darkroom.training.stage import NOT_TRAINED, Job, Train, run_training


def build(
    params: Params,
    image_shape: tuple[int, int, int],
    train_rows: IndexedDataset,
    val_rows: IndexedDataset,
    perceptual: nn.Module | None = None,
) -> TokenizerRecipe:
    """Return the recipe of the chosen kind with its untrained network, for images of shape (C, H, W)."""
    settings = params.train_tokenizer
    recipe: type[TokenizerRecipe] = TOKENIZERS.load("recipe", settings.kind)
    with seeded(derive(settings.own_training.seed, "tokenizer/weights")):
        return recipe(settings.chosen, settings.own_training, image_shape, train_rows, val_rows, perceptual)


def perceptual_of(params: Params, image_shape: tuple[int, int, int]) -> nn.Module | None:
    """Return the frozen network of the chosen kind's perceptual loss with its weights; None: it has none."""
    settings = params.train_tokenizer
    if settings.untrained or settings.perceptual is None or settings.perceptual.network == "none":
        return None
    from darkroom.models.tokenizers.perceptual import load_perceptual

    return load_perceptual(settings.perceptual.network, Path(settings.teacher), image_shape)


def run(params: Params, train: Train | None = None) -> None:
    """Train the tokenizer that `kind` names, or import given weights; write its averaged weights."""
    training, opened = params.train_tokenizer.own_training, partial(_open, params)
    run_training("train_tokenizer", training, params.run, opened, train)


def _open(params: Params, device: torch.device) -> Job:
    settings, training = params.train_tokenizer, params.train_tokenizer.own_training
    selection = load_selection()
    if TOKENIZERS.has("imported", settings.kind):
        imported = TOKENIZERS.load("imported", settings.kind)(settings.chosen, selection.spec.shape)
        print(f"{settings.kind}: {sum(p.numel() for p in imported.parameters()):,} parameters, not trained")
        return Job(imported.save_pretrained, _metadata(params, selection, imported) | NOT_TRAINED)
    splits = {split: ImageShards.open_parts(list(selection.parts), split) for split in ("train", "val")}
    perceptual = perceptual_of(params, selection.spec.shape)
    labelled = settings.chosen.labelled
    classes = Classes.of(shards.label_column for shards in splits.values()) if labelled else Classes(())
    needing = f"`train_tokenizer.{settings.kind}`", f"set `train_tokenizer.{settings.kind}.classes` to false"
    train_set, val_set = (
        LabelledImages(shards, classes, training.seed, *needing) if labelled else Images(shards, training.seed)
        for shards in splits.values()
    )
    recipe = build(params, selection.spec.shape, train_set, val_set, perceptual)
    parameters = sum(value.numel() for value in recipe.modules["tokenizer"].parameters())
    print(f"{settings.kind}: {parameters:,} parameters, {len(recipe.train):,} images")
    metadata = _metadata(params, selection, recipe.model) | ({"classes": [*classes.classes]} if labelled else {})
    if settings.untrained:
        initialise({"tokenizer": recipe.modules["tokenizer"]}, training.init)
        return Job(recipe.model.save_pretrained, metadata | NOT_TRAINED)
    return Job(recipe.model.save_pretrained, metadata, recipe, kept_weights=True)


def _metadata(params: Params, selection: Selection, model: Tokenizer) -> dict[str, Any]:
    return {
        "tokenizer_kind": params.train_tokenizer.kind,
        "image_shape": list(selection.spec.shape),
        "latent_shape": list(model.latent_shape),
        "selection": selection.fingerprint,
    }
