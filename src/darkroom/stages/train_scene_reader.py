"""Stage `train_scene_reader`: renders of its own in, `models/scene_reader/` and its curves out. It never teaches.

Where no score asks for it, it is not trained: the folder says why.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from darkroom.artifacts.atomic import atomic_folder, require_writable
from darkroom.artifacts.manifest import file_hashes, write_manifest
from darkroom.artifacts.models import SCENE_READER
from darkroom.models.evaluators.scene_reader.settings import Params
from darkroom.stages.untrained import write_untrained
from darkroom.training.state import open_state

if TYPE_CHECKING:
    from darkroom.models.evaluators.scene_reader.recipe import Renders, SceneReaderRecipe
    from darkroom.training.recipe import IndexedDataset

OUT, CURVES, LOGS = Path("models/scene_reader"), Path("curves/scene_reader"), Path("logs/train_scene_reader")


def build(params: Params, train_rows: "IndexedDataset", val_rows: "IndexedDataset") -> "SceneReaderRecipe":
    """Return the recipe with its untrained network."""
    from darkroom.models.evaluators.scene_reader.network import SceneReader
    from darkroom.models.evaluators.scene_reader.recipe import WORDS, SceneReaderRecipe
    from darkroom.rng import derive
    from darkroom.training.loop import seeded

    settings = params.train_scene_reader
    with seeded(derive(settings.training.seed, "scene_reader/weights")):
        model = SceneReader(WORDS, settings.model.channels, settings.model.layers)
    return SceneReaderRecipe(model, settings.augment, settings.training.seed, train_rows, val_rows)


def renders(params: Params, split: str) -> "Renders":
    """Return the renders of a split: in the train split as many as the training sees, so that none comes twice."""
    from darkroom.models.evaluators.scene_reader.recipe import Renders

    settings = params.train_scene_reader
    count = settings.training.images if split == "train" else settings.held_out
    return Renders(settings.training.seed, split, count, params.ingest.image_size, settings.kinds)


def run(params: Params) -> None:
    """Train the reader, and write it with its averaged weights and what it reads right of renders it has not seen."""
    for path in (OUT, CURVES):
        require_writable(path)
    if params.idle:
        write_untrained(OUT, CURVES, SCENE_READER, params.idle, "no scene reader is trained")
        return
    _train(params)


def _train(params: Params) -> None:
    # Imported here: nothing to train needs no torch.
    from darkroom.data.images import ImageSpec
    from darkroom.device import set_up_device
    from darkroom.models.evaluators.scene_reader.recipe import accuracy
    from darkroom.training.loop import train
    from darkroom.training.trainer import Places

    settings = params.train_scene_reader
    spec = ImageSpec(params.ingest.image_size, params.ingest.channels, "png")
    device = set_up_device(settings.training.threads, params.run.device)
    with open_state("train_scene_reader") as state:
        recipe = build(params, renders(params, "train"), renders(params, "val"))
        model = recipe.model
        print(f"{sum(p.numel() for p in model.parameters()):,} parameters, {settings.training.images:,} renders")
        trainer = train(recipe, settings.training, params.run, Places(state, CURVES, LOGS))
        with trainer.averaged(), atomic_folder(OUT) as folder:
            found = accuracy(model, renders(params, "test"), settings.training.batch, device)
            print("  ".join(f"{name} {share:.4f}" for name, share in found.items()))
            model.save_pretrained(folder)
            write_manifest(
                folder,
                SCENE_READER,
                trained=True,
                image_shape=list(spec.shape),
                kinds=settings.kinds,
                held_out=settings.held_out,
                accuracy=found,
                images_seen=trainer.images,
                **trainer.metadata(),
                files=file_hashes(folder),
            )
