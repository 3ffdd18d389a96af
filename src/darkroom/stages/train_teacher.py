"""Stage `train_teacher`: train the teacher on the tokenizer's parts, and write `models/teacher/` and its curves.

It never scores. If no loss of the tokenizer needs it, it is not trained, and the folder says why.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from darkroom.models.evaluators.settings import TeacherParams
from darkroom.training.stage import Job, Train, run_training

if TYPE_CHECKING:
    import torch

_ELSE = "choose lpips or vgg16 as `perceptual.network` of the tokenizer, which need no labels"


def run(params: TeacherParams, train: Train | None = None) -> None:
    """Train the teacher on the tokenizer's training images, and write it with its averaged weights."""
    settings, opened = params.train_teacher, partial(_open, params)
    run_training("train_teacher", settings.training, params.run, opened, train, params.idle, "no teacher is trained")


def _open(params: TeacherParams, device: torch.device) -> Job:
    from darkroom.data.catalog import load_selection
    from darkroom.data.reader import ImageShards
    from darkroom.errors import DarkroomError
    from darkroom.models.evaluators.teacher import Teacher, TeacherRecipe
    from darkroom.rng import derive
    from darkroom.training.data import Classes, LabelledImages
    from darkroom.training.loop import seeded

    settings = params.train_teacher
    seed = settings.training.seed
    selection = load_selection()
    shards = [ImageShards.open_parts(list(selection.parts), split) for split in ("train", "val")]
    # The teacher's own: the class numbers of the catalog change with parts outside of the selection.
    classes = Classes.of(split.label_column for split in shards)
    train_set, val_set = (LabelledImages(split, classes, seed, "`train_teacher`", _ELSE) for split in shards)
    if len(names := classes.classes) < 2:
        raise DarkroomError(f"all images have the label `{names[0]}`, so there are no classes to learn: {_ELSE}.")
    with seeded(derive(seed, "teacher/weights")):
        model = Teacher(selection.spec.shape[0], len(names), settings.model.channels, settings.model.layers)
    recipe = TeacherRecipe(model, settings.augment, seed, train_set, val_set)
    print(f"{sum(p.numel() for p in recipe.model.parameters()):,} parameters, {len(train_set):,} images")
    metadata = {
        "trained": True,
        "image_shape": list(selection.spec.shape),
        "classes": list(names),
        "selection": selection.fingerprint,
    }
    return Job(recipe.model.save_pretrained, metadata, recipe)
