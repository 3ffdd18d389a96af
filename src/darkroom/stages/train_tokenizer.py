"""Stage `train_tokenizer`: the chosen parts' shards in, `models/tokenizer/` and its curves out."""

from pathlib import Path
from typing import Any

from torch import nn

from darkroom.artifacts.atomic import atomic_folder, require_writable
from darkroom.artifacts.manifest import file_hashes, write_manifest
from darkroom.data.catalog import Selection, load_selection
from darkroom.data.reader import ImageShards
from darkroom.device import set_up_device
from darkroom.metrics.matching import BALANCED, FREQUENCY
from darkroom.models.evaluators.evaluation import Evaluation
from darkroom.models.kinds import TOKENIZERS
from darkroom.models.tokenizers.protocol import KIND, Tokenizer
from darkroom.models.tokenizers.recipe import TokenizerRecipe
from darkroom.models.tokenizers.settings import Params
from darkroom.rng import derive
from darkroom.training.curves import write_curves
from darkroom.training.data import Classes, Images, LabelledImages
from darkroom.training.initial import initialise
from darkroom.training.loop import seeded, train
from darkroom.training.recipe import IndexedDataset
from darkroom.training.state import open_state
from darkroom.training.trainer import Places, Trainer

OUT, CURVES, LOGS = Path("models/tokenizer"), Path("curves/tokenizer"), Path("logs/train_tokenizer")

# What the manifest says of a training that there was not.
_UNTRAINED: dict[str, Any] = {"images_seen": 0, "selected": "last", "best_validation": None}


def build(
    params: Params,
    image_shape: tuple[int, int, int],
    train_rows: IndexedDataset,
    val_rows: IndexedDataset,
    perceptual: nn.Module | None = None,
    evaluation: Evaluation | None = None,
) -> TokenizerRecipe:
    """Return the recipe of the chosen kind with its untrained network, for images of shape (C, H, W)."""
    settings = params.train_tokenizer
    recipe: type[TokenizerRecipe] = TOKENIZERS.load("recipe", settings.kind)
    with seeded(derive(settings.own_training.seed, "tokenizer/weights")):
        return recipe(settings.chosen, settings.own_training, image_shape, train_rows, val_rows, perceptual, evaluation)


def perceptual_of(params: Params, image_shape: tuple[int, int, int]) -> nn.Module | None:
    """Return the frozen network of the chosen kind's perceptual loss with its weights; None where it has none."""
    settings = params.train_tokenizer
    if settings.untrained or settings.perceptual is None or settings.perceptual.network == "none":
        return None
    from darkroom.models.tokenizers.perceptual import load_perceptual

    return load_perceptual(settings.perceptual.network, Path(settings.teacher), image_shape)


def _write(
    model: Tokenizer, params: Params, selection: Selection, trained: dict[str, Any], trainer: Trainer | None = None
) -> None:
    """Write the tokenizer with its manifest; `trained` is what the manifest says of its training."""
    with atomic_folder(OUT) as folder:
        model.save_pretrained(folder)
        if trainer is not None:
            trainer.save_kept(folder, model.save_pretrained)
        write_manifest(
            folder,
            KIND,
            tokenizer_kind=params.train_tokenizer.kind,
            image_shape=list(selection.spec.shape),
            latent_shape=list(model.latent_shape),
            selection=selection.fingerprint,
            **trained,
            files=file_hashes(folder),
        )


def _import(params: Params, selection: Selection) -> None:
    """Write what is not trained, published weights or none, as the tokenizer; its curves have no point."""
    chosen: Any = params.train_tokenizer.chosen
    model: Any = TOKENIZERS.load("imported", params.train_tokenizer.kind)(chosen, selection.spec.shape)
    print(f"{params.train_tokenizer.kind}: {sum(p.numel() for p in model.parameters()):,} parameters, not trained")
    write_curves(CURVES, [])
    _write(model, params, selection, _UNTRAINED)


def run(params: Params) -> None:
    """Train the tokenizer that `kind` names, or take given weights as they are; write its averaged weights."""
    settings, training = params.train_tokenizer, params.train_tokenizer.own_training
    for path in (OUT, CURVES):
        require_writable(path)
    set_up_device(training.threads, params.run.device)
    selection = load_selection()
    if TOKENIZERS.has("imported", settings.kind):
        _import(params, selection)
        return
    splits = {split: ImageShards.open_parts(list(selection.parts), split) for split in ("train", "val")}
    perceptual = perceptual_of(params, selection.spec.shape)
    with open_state("train_tokenizer") as state:
        labelled = settings.chosen.labelled
        classes = Classes.of(shards.label_column for shards in splits.values()) if labelled else Classes(())
        needing = f"`train_tokenizer.{settings.kind}`", f"set `train_tokenizer.{settings.kind}.classes` to false"
        train_set, val_set = (
            LabelledImages(shards, classes, training.seed, *needing) if labelled else Images(shards, training.seed)
            for shards in splits.values()
        )
        distribution = BALANCED if classes.classes else FREQUENCY
        evaluation = Evaluation.open(settings.evaluate, selection.spec.shape, classes.classes, distribution)
        recipe = build(params, selection.spec.shape, train_set, val_set, perceptual, evaluation)
        parameters = sum(value.numel() for value in recipe.modules["tokenizer"].parameters())
        print(f"{settings.kind}: {parameters:,} parameters, {len(recipe.train):,} images")
        known: dict[str, Any] = {"classes": list(classes.classes)} if labelled else {}
        if settings.untrained:
            initialise({"tokenizer": recipe.modules["tokenizer"]}, training.init)
            write_curves(CURVES, [])
            _write(recipe.model, params, selection, {**known, **_UNTRAINED})
            return
        trainer = train(recipe, training, params.run, Places(state, CURVES, LOGS))
        with trainer.averaged():
            known |= {"images_seen": trainer.images, **trainer.metadata()}
            _write(recipe.model, params, selection, known, trainer)
