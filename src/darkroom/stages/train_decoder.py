"""Stage `train_decoder@UNET`: shards and embeddings in, `models/decoder/UNET/` and its curves out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from darkroom.artifacts.atomic import atomic_folder, require_writable
from darkroom.artifacts.manifest import file_hashes, manifest_hash, read_manifest, write_manifest
from darkroom.artifacts.models import CLIP, DECODER_FOLDER
from darkroom.artifacts.models import DECODER as KIND
from darkroom.data.catalog import Catalog, load_catalog
from darkroom.models.clip.settings import NO_CLIP
from darkroom.models.decoder.settings import Params
from darkroom.models.decoder.unet_settings import UNet
from darkroom.params.numbers import NO_FILE
from darkroom.processes.launch import rank
from darkroom.stages.untrained import write_untrained
from darkroom.training.curves import write_curves
from darkroom.training.state import open_state

if TYPE_CHECKING:
    from darkroom.models.decoder.evaluation import Evaluation
    from darkroom.models.decoder.opening import DecoderData
    from darkroom.models.decoder.recipe import DecoderRecipe
    from darkroom.models.decoder.sample import CascadeStage

MODELS, CURVES, LOGS = DECODER_FOLDER, Path("curves/decoder"), Path("logs")
_LEFT_OUT = "this U-Net is left out of the cascade"


def build(params: Params, name: str, opened: DecoderData, evaluation: Evaluation | None = None) -> DecoderRecipe:
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


def _facts(params: Params, name: str, opened: DecoderData) -> dict[str, Any]:
    """Return what a manifest says of a U-Net whether it was trained here or not."""
    section = params.train_decoder
    settings = section.unets[name]
    return {
        "trained": True,
        "size": settings.size,
        "low_size": settings.low_size,
        "low_downsample": settings.low.downsample,
        "timesteps": section.timesteps,
        **settings.diffusion.prediction(),
        **opened.metadata,
    }


def _facts_of_distilled(teacher: CascadeStage, folder: Path, settings: UNet, opened: DecoderData) -> dict[str, Any]:
    """Return what the manifest of a U-Net says that is distilled from that in `folder`."""
    same = ("size", "low_size", "low_downsample", "timesteps", "objective", "prediction")
    return {
        "trained": True,
        **{name: teacher.metadata[name] for name in same},
        **opened.metadata,
        "calls": settings.calls,
        "teacher": teacher.name,
        "teacher_manifest": manifest_hash(folder),
        "teacher_images_seen": teacher.metadata.get("images_seen", 0),
    }


def run(params: Params, name: str) -> None:
    """Train one U-Net of the cascade, or distil it from another, and write averaged weights, and raw ones in `raw/`.

    One that is not to be trained is written with those that `weights` names, or with none.
    """
    settings, out, curves = params.train_decoder.unets[name], MODELS / name, CURVES / name
    for path in (out, curves):
        require_writable(path)
    if not settings.trained and (settings.weights == NO_FILE or settings.calls is not None):
        write_untrained(out, curves, KIND, "`trained` is false", _LEFT_OUT)
        return
    catalog = load_catalog(shards=None)
    if _untold(settings, list(catalog.parts)):
        write_untrained(out, curves, KIND, NO_CLIP, _LEFT_OUT)
        return
    _train(params, name, catalog)


def _train(params: Params, name: str, catalog: Catalog) -> None:
    # Imported here: a U-Net that is left out needs no torch.
    from darkroom.device import set_up_device
    from darkroom.models.decoder.cascade import open_stage
    from darkroom.models.decoder.distilled import DistilledRecipe, like_teacher
    from darkroom.models.decoder.evaluation import Evaluation
    from darkroom.models.decoder.opening import open_data, weights_key
    from darkroom.training.initial import initial_manifest, initialise, require_same
    from darkroom.training.loop import train
    from darkroom.training.trainer import Places

    section, out, curves = params.train_decoder, MODELS / name, CURVES / name
    settings, training = section.unets[name], section.training_of(name)
    device = set_up_device(training.threads, params.run.device)
    teacher = None
    if settings.calls is not None:
        teacher = open_stage(Path(settings.weights))
        teacher.network.to(device)
        section = like_teacher(section, name, teacher)
    opened = open_data(section, name, catalog, device)
    evaluation = Evaluation.open(section.evaluate, catalog, len(opened.rows["val"]), device)
    recipe: DecoderRecipe | DistilledRecipe
    metadata = {"image": catalog.spec.metadata(), "catalog": catalog.fingerprint}
    if teacher is None:
        recipe = build(params, name, opened, evaluation)
        metadata |= _facts(params, name, opened)
    else:
        recipe = DistilledRecipe(teacher, section.unets[name], opened, training.seed, evaluation)
        metadata |= _facts_of_distilled(teacher, Path(settings.weights), settings, opened)
        print(f"{recipe.calls.steps} steps of {settings.teacher.solver} into {settings.calls} calls")
    model = recipe.model
    print(f"{sum(p.numel() for p in model.parameters()):,} parameters, {len(recipe.train):,} images")
    if not settings.trained:
        if (place := rank()) is not None and place.number:
            return
        begun = initial_manifest(settings.weights, KIND)
        require_same(weights_key(name), begun, metadata, ("size", "low_size", "timesteps", "objective", "prediction"))
        initialise({"unet": model}, training.init)
        write_curves(curves, [])
        with atomic_folder(out) as folder:
            for where in (folder, folder / "raw"):
                model.save_pretrained(where)
            write_manifest(folder, KIND, images_seen=0, **metadata, files=file_hashes(folder))
        return
    with open_state("train_decoder", name) as state:
        trainer = train(recipe, training, params.run, Places(state, curves, LOGS / f"train_decoder-{name}"))
        with atomic_folder(out) as folder:
            trainer.save(folder, model.save_pretrained)
            write_manifest(
                folder, KIND, images_seen=trainer.images, **trainer.metadata(), **metadata, files=file_hashes(folder)
            )


def _untold(settings: UNet, parts: Sequence[str]) -> bool:
    """Return whether CLIP is to tell a U-Net something, and there is none."""
    if settings.clip != NO_FILE:
        return read_manifest(Path(settings.clip), CLIP)["weights"] is None
    if settings.embeddings == NO_FILE:
        return False
    from darkroom.data.embeddings import no_embeddings

    return no_embeddings(parts, Path(settings.embeddings))
