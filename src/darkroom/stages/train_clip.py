"""Stage `train_clip`: train or import the CLIP, and write `models/clip/`, its curves and its scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from darkroom.artifacts.atomic import atomic_folder, require_writable, write_json
from darkroom.artifacts.manifest import write_manifest
from darkroom.artifacts.models import CLIP as KIND
from darkroom.errors import DarkroomError
from darkroom.models.clip.settings import NO_CLIP, Params
from darkroom.training.curves import write_curves
from darkroom.training.stage import NOT_TRAINED, Job, Train, run_training

if TYPE_CHECKING:
    import torch

    from darkroom.data.catalog import Catalog
    from darkroom.data.reader import ImageShards
    from darkroom.models.clip.network import CLIP
    from darkroom.models.clip.openclip import OpenClip
    from darkroom.models.clip.scores import CaptionedImages

OUT, CURVES = Path("models/clip"), Path("curves/clip")
METRICS, CARD = Path("metrics/clip.json"), Path("cards/clip.json")
Prompts = Mapping[str, Sequence[str]]


def _score(params: Params, catalog: Catalog, prompts: Prompts, device: torch.device) -> None:
    from darkroom.data.reader import ImageShards
    from darkroom.metrics.cards import library_versions
    from darkroom.metrics.pair_scores import ERROR, RETRIEVAL
    from darkroom.models.clip.load import load_clip
    from darkroom.models.clip.scores import CaptionedImages, Examples

    settings = params.train_clip.evaluate
    clip = load_clip(OUT).to(device)
    shards = ImageShards.open_parts(list(catalog.parts), settings.split)
    images = CaptionedImages(shards, clip.context_length, clip.truncate)
    examples = Examples(images, prompts, settings.images, settings.batch)
    values = examples.scored(clip.images, lambda tokens: clip.tokens(tokens)[0], device) if examples.count else {}
    scores = values | {"images": examples.count, "captions": len(examples.texts)}
    write_json(METRICS, scores)
    card = {
        "protocol": {
            "reference": {"id": catalog.fingerprint, "split": settings.split},
            "images": examples.count,
            "captions": len(examples.texts),
            "classes": len(prompts),
            "prompts": settings.prompts or f"the {settings.captions} most frequent captions of each class in train",
            "libraries": library_versions(),
        },
        "treatment": {"clip": clip.fingerprint},
        "baselines": {"zero_shot_accuracy": {"constant": examples.constant}} if "zero_shot_accuracy" in values else {},
        "formulas": {score.name: score.formula for score in RETRIEVAL if score.name in values} | {"se": ERROR},
    }
    write_json(CARD, card)
    print("  ".join(f"{name} {value:.4g}" for name, value in scores.items()))


def _write_none() -> None:
    write_curves(CURVES, [])
    with atomic_folder(OUT) as folder:
        write_manifest(folder, KIND, source="none", weights=None, files={})
    for path in (METRICS, CARD):
        write_json(path, {})
    print(f"{NO_CLIP}: no CLIP, no embeddings, no decoder, no prior")


def run(params: Params, train: Train | None = None) -> None:
    """Train the CLIP or import a published one, write its averaged weights, and score it."""
    for path in (OUT, CURVES, METRICS, CARD):
        require_writable(path)
    if params.train_clip.source == "none":
        _write_none()
        return
    training, opened = params.train_clip.training, partial(_open, params)
    run_training("train_clip", training, params.run, opened, train)


def _open(params: Params, device: torch.device) -> Job:
    from darkroom.data.catalog import load_catalog
    from darkroom.data.reader import ImageShards
    from darkroom.models.clip.load import save_clip
    from darkroom.models.clip.network import Contrastive
    from darkroom.models.clip.recipe import ClipRecipe
    from darkroom.models.clip.scores import CaptionedImages, Examples, prompts_of, require_captions
    from darkroom.rng import derive
    from darkroom.training.loop import seeded

    settings, training = params.train_clip, params.train_clip.training
    catalog = load_catalog()
    train_shards, val_shards = (ImageShards.open_parts(list(catalog.parts), split) for split in ("train", "val"))
    truncate, evaluate = settings.long_captions == "truncate", settings.evaluate

    def captioned(shards: ImageShards, context: int) -> CaptionedImages:
        return CaptionedImages(shards, context, truncate, training.seed)

    if settings.source == "pretrained":
        network = _published(params, catalog)
        images = captioned(train_shards, network.context_length)
        prompts = prompts_of(images, catalog.classes, evaluate.prompts, evaluate.captions)
        given = settings.pretrained
        recipe, trained = None, {"name": given and (given.name or given.open_clip), **NOT_TRAINED}
    else:
        assert settings.trained is not None
        images = captioned(train_shards, settings.trained.model.context_length)
        require_captions(images)
        prompts = prompts_of(images, catalog.classes, evaluate.prompts, evaluate.captions)
        val_set = captioned(val_shards, settings.trained.model.context_length)
        scorer = Examples(val_set, prompts, evaluate.images, evaluate.batch, training.validate_every)
        with seeded(derive(training.seed, "clip/weights")):
            network = Contrastive(settings.trained.model.model_dump())
        # Equal captions are merged where the network is not compiled, for fixed shapes.
        equal, merge = settings.trained.equal_captions, not training.compile
        recipe = ClipRecipe(network, equal, images, val_set, scorer if scorer.count else None, merge)
        trained = {"name": None}
        parameters = sum(p.numel() for p in network.parameters())
        print(f"{parameters:,} parameters, {len(images):,} images, {len(images.texts):,} distinct captions")
    return Job(
        lambda folder: save_clip(folder, network),
        {"source": settings.source, "long_captions": settings.long_captions, "prompts": prompts, **trained},
        recipe,
        kept_weights=True,
        finish=lambda: _score(params, catalog, prompts, device),
    )


def _published(params: Params, catalog: Catalog) -> CLIP | OpenClip:
    """Return the published CLIP that params.yaml names.

    Raises:
        DarkroomError: its images are much larger than those of the catalog, or a file cannot be read.
    """
    from darkroom.models.clip.load import read_pretrained
    from darkroom.models.clip.openclip import read_open_clip
    from darkroom.training.initial import downloads

    given = params.train_clip.pretrained
    assert given is not None
    network: CLIP | OpenClip
    if given.of_open_clip is not None:
        network = read_open_clip(given.of_open_clip, downloads() / "clip")
        size = network.image_size
    else:
        network = read_pretrained(given.name, given.file, downloads() / "clip")
        size = network.visual.input_resolution
    if reason := given.too_large(size, catalog.image_shape[-1]):
        raise DarkroomError(f"{reason}.")
    print(f"{given.name or given.open_clip or given.file}: not trained")
    return network
