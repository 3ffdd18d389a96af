"""Stage `train_classifier`: latents in, `models/classifier/` and its curves out. It never scores.

Where no samples are guided by it, it is not trained: the folder says why.
"""

from pathlib import Path

from darkroom.artifacts.atomic import atomic_folder, require_writable
from darkroom.artifacts.manifest import file_hashes, write_manifest
from darkroom.artifacts.models import CLASSIFIER
from darkroom.models.generators.classifier.settings import Params
from darkroom.stages.untrained import write_untrained
from darkroom.training.state import open_state

OUT, CURVES, LOGS = Path("models/classifier"), Path("curves/classifier"), Path("logs/train_classifier")


def run(params: Params) -> None:
    """Train the classifier on the generator's latents, under its noise, and write it with its averaged weights."""
    for path in (OUT, CURVES):
        require_writable(path)
    if params.idle:
        write_untrained(OUT, CURVES, CLASSIFIER, params.idle, "no classifier of noisy latents is trained")
        return
    _train(params)


def _train(params: Params) -> None:
    # Imported here: nothing to train needs no torch.
    import torch

    from darkroom.data.catalog import load_catalog
    from darkroom.data.latents import LatentShards
    from darkroom.device import set_up_device
    from darkroom.diffusion.scalers import LatentScaler
    from darkroom.models.generators.classifier.network import Classifier, ClassifierConfig
    from darkroom.models.generators.classifier.recipe import ClassifierRecipe
    from darkroom.models.generators.data import LabelledLatents
    from darkroom.models.generators.latents import scale_of
    from darkroom.rng import derive
    from darkroom.training.loop import seeded, train
    from darkroom.training.trainer import Places

    settings, training = params.train_classifier, params.train_classifier.training
    set_up_device(training.threads, params.run.device)
    catalog = load_catalog(shards=None)
    shards = [LatentShards.open_parts(list(catalog.parts), split) for split in ("train", "val")]
    latents = shards[0]
    catalog.require_parts(latents.sources)
    diffusion = params.train_generator.dit.diffusion.sized(latents.shape)
    mean, std = scale_of(diffusion, latents)
    channels, size, _ = latents.shape
    classes = list(catalog.classes)
    config = ClassifierConfig(channels, size, len(classes), **settings.model.model_dump())
    with open_state("train_classifier") as state:
        with seeded(derive(training.seed, "classifier/weights")):
            model = Classifier(config)
        train_rows, val_rows = (LabelledLatents(split, catalog, training.seed) for split in shards)
        codebook = None if latents.codebook is None else torch.from_numpy(latents.codebook)
        scaler = LatentScaler(mean, std)
        recipe = ClassifierRecipe(model, diffusion, training.seed, train_rows, val_rows, scaler, codebook)
        print(f"{sum(p.numel() for p in model.parameters()):,} parameters, {len(latents):,} latents")
        trainer = train(recipe, training, params.run, Places(state, CURVES, LOGS))
        with trainer.averaged(), atomic_folder(OUT) as folder:
            model.save_pretrained(folder)
            write_manifest(
                folder,
                CLASSIFIER,
                trained=True,
                classes=classes,
                latent_shape=list(latents.shape),
                latent_mean=mean,
                latent_std=std,
                **diffusion.prediction(),
                tokenizer=latents.tokenizer,
                images_seen=trainer.images,
                **trainer.metadata(),
                files=file_hashes(folder),
            )
