"""Stage `train_teacher`: the tokenizer's parts' shards in, `models/teacher/` and its curves out. It never scores.

Where no loss of the tokenizer asks for it, it is not trained: the folder says why.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from darkroom.artifacts.atomic import atomic_folder, require_writable
from darkroom.artifacts.manifest import file_hashes, write_manifest
from darkroom.artifacts.models import TEACHER
from darkroom.models.evaluators.teacher.settings import Params
from darkroom.stages.untrained import write_untrained
from darkroom.training.state import open_state

if TYPE_CHECKING:
    from darkroom.models.evaluators.teacher.recipe import TeacherRecipe
    from darkroom.training.recipe import IndexedDataset

OUT, CURVES, LOGS = Path("models/teacher"), Path("curves/teacher"), Path("logs/train_teacher")


def build(
    params: Params,
    image_shape: tuple[int, int, int],
    classes: int,
    train_rows: "IndexedDataset",
    val_rows: "IndexedDataset",
) -> "TeacherRecipe":
    """Return the recipe with its untrained network, for images of shape (C, H, W) of so many classes."""
    from darkroom.models.evaluators.teacher.network import Teacher
    from darkroom.models.evaluators.teacher.recipe import TURNS, TeacherRecipe
    from darkroom.rng import derive
    from darkroom.training.loop import seeded

    settings = params.train_teacher
    with seeded(derive(settings.training.seed, "teacher/weights")):
        model = Teacher(
            in_channels=image_shape[0],
            classes=TURNS if settings.target == "rotation" else classes,
            channels=settings.model.channels,
            layers=settings.model.layers,
        )
    return TeacherRecipe(model, settings.target, settings.augment, settings.training.seed, train_rows, val_rows)


def run(params: Params) -> None:
    """Train the teacher on what the tokenizer is trained on, and write it with its averaged weights."""
    for path in (OUT, CURVES):
        require_writable(path)
    if params.idle:
        write_untrained(OUT, CURVES, TEACHER, params.idle, "no teacher is trained")
        return
    _train(params)


def _train(params: Params) -> None:
    # Imported here: nothing to train needs no torch.
    from darkroom.data.catalog import load_selection
    from darkroom.data.reader import ImageShards
    from darkroom.device import set_up_device
    from darkroom.models.evaluators.teacher.recipe import TURNS, NamedImages, class_names
    from darkroom.training.data import Images
    from darkroom.training.loop import train
    from darkroom.training.trainer import Places

    settings = params.train_teacher
    set_up_device(settings.training.threads, params.run.device)
    selection = load_selection()
    shards = [ImageShards.open_parts(list(selection.parts), split) for split in ("train", "val")]
    names = class_names(*shards) if settings.target == "labels" else [f"{90 * turn} degrees" for turn in range(TURNS)]
    seed = settings.training.seed
    train_set, val_set = (
        NamedImages(split, names, seed) if settings.target == "labels" else Images(split, seed) for split in shards
    )
    with open_state("train_teacher") as state:
        recipe = build(params, selection.spec.shape, len(names), train_set, val_set)
        model = recipe.model
        print(f"{sum(p.numel() for p in model.parameters()):,} parameters, {len(train_set):,} images")
        trainer = train(recipe, settings.training, params.run, Places(state, CURVES, LOGS))
        with trainer.averaged(), atomic_folder(OUT) as folder:
            model.save_pretrained(folder)
            write_manifest(
                folder,
                TEACHER,
                trained=True,
                image_shape=list(selection.spec.shape),
                target=settings.target,
                classes=names,
                selection=selection.fingerprint,
                images_seen=trainer.images,
                **trainer.metadata(),
                files=file_hashes(folder),
            )
