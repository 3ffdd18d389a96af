"""Stage `train_tokenizer`: the chosen parts' shards in, `models/tokenizer/` and its curves out."""

from pathlib import Path

from darkroom.artifacts.atomic import atomic_folder, require_writable
from darkroom.artifacts.manifest import file_hashes, write_manifest
from darkroom.data.reader import ImageShards
from darkroom.data.selection import load_selection
from darkroom.device import set_up_device
from darkroom.random import derive
from darkroom.recipes.data import Classes, Images, LabelledImages
from darkroom.recipes.kl import KLRecipe
from darkroom.recipes.tokenizer import TokenizerRecipe
from darkroom.recipes.vq_ar import VQARRecipe
from darkroom.schemas.train_tokenizer import Params
from darkroom.tokenizers.protocol import KIND
from darkroom.training.loop import seeded, train
from darkroom.training.recipe import Rows
from darkroom.training.state import open_state
from darkroom.training.trainer import Places

RECIPES: dict[str, type[TokenizerRecipe]] = {"kl": KLRecipe, "vq_ar": VQARRecipe}
OUT, CURVES, LOGS = Path("models/tokenizer"), Path("curves/tokenizer"), Path("logs/train_tokenizer")


def build(params: Params, image_shape: tuple[int, int, int], train_rows: Rows, val_rows: Rows) -> TokenizerRecipe:
    """Return the recipe of the chosen kind with its untrained network, for images of shape (C, H, W)."""
    settings = params.train_tokenizer
    with seeded(derive(settings.training.seed, "tokenizer/weights")):
        return RECIPES[settings.kind].build(settings.chosen, settings.training, image_shape, train_rows, val_rows)


def run(params: Params) -> None:
    """Train the tokenizer that `kind` names and write it with its averaged weights."""
    settings, training = params.train_tokenizer, params.train_tokenizer.training
    for path in (OUT, CURVES):
        require_writable(path)
    set_up_device(training.threads, params.run.device)
    selection = load_selection()
    splits = {split: ImageShards.open_parts(list(selection.parts), split) for split in ("train", "val")}
    with open_state("train_tokenizer") as state:
        labelled = settings.chosen.labelled
        classes = Classes.of(shards.label_column for shards in splits.values()) if labelled else Classes(())
        train_set, val_set = (
            LabelledImages(shards, classes, training.seed) if labelled else Images(shards, training.seed)
            for shards in splits.values()
        )
        recipe = build(params, selection.spec.shape, train_set, val_set)
        model = recipe.model
        parameters = sum(value.numel() for value in recipe.modules["tokenizer"].parameters())
        print(f"{settings.kind}: {parameters:,} parameters, {len(recipe.train):,} images")
        trainer = train(recipe, training, params.run, Places(state, CURVES, LOGS))
        with trainer.averaged(), atomic_folder(OUT) as folder:
            model.save_pretrained(folder)
            write_manifest(
                folder,
                KIND,
                tokenizer_kind=settings.kind,
                image_shape=list(selection.spec.shape),
                latent_shape=list(model.latent_shape),
                selection=selection.identity,
                **({"classes": list(classes.classes)} if labelled else {}),
                images_seen=trainer.images,
                **trainer.facts(),
                files=file_hashes(folder),
            )
