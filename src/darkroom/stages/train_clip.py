"""Stage `train_clip`: shards in, `models/clip/`, its curves and its scores out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from darkroom.artifacts.atomic import atomic_folder, require_writable, write_json
from darkroom.artifacts.manifest import file_hashes, write_manifest
from darkroom.artifacts.models import CLIP as KIND
from darkroom.errors import DarkroomError
from darkroom.models.clip.settings import NO_CLIP, Params
from darkroom.training.curves import write_curves
from darkroom.training.state import open_state

if TYPE_CHECKING:
    import torch

    from darkroom.data.catalog import Catalog
    from darkroom.data.reader import ImageShards
    from darkroom.models.clip.captions import CaptionedImages
    from darkroom.models.clip.openclip import OpenClip
    from darkroom.models.clip.package import CLIP
    from darkroom.models.clip.recipe import ClipRecipe
    from darkroom.models.clip.scores import Examples
    from darkroom.training.recipe import IndexedDataset
    from darkroom.training.trainer import Trainer

OUT, CURVES, LOGS = Path("models/clip"), Path("curves/clip"), Path("logs/train_clip")
METRICS, CARD = Path("metrics/clip.json"), Path("cards/clip.json")
Prompts = Mapping[str, Sequence[str]]


def build(
    params: Params, train_rows: IndexedDataset, val_rows: IndexedDataset, scorer: Examples | None = None
) -> ClipRecipe:
    """Return the recipe with its untrained network; `scorer` scores it while it trains."""
    from darkroom.models.clip.network import Contrastive
    from darkroom.models.clip.recipe import ClipRecipe
    from darkroom.rng import derive
    from darkroom.training.loop import seeded

    settings = params.train_clip
    assert settings.trained is not None  # the source is `trained`
    with seeded(derive(settings.training.seed, "clip/weights")):
        model = Contrastive(settings.trained.model.model_dump())
    merge = not settings.training.compile  # compiled for fixed shapes
    return ClipRecipe(model, settings.trained.equal_captions, train_rows, val_rows, scorer, merge)


def _write(
    network: CLIP | OpenClip, params: Params, prompts: Prompts, trained: dict[str, Any], trainer: Trainer | None = None
) -> None:
    """Write the CLIP with its manifest; `trained` is what that says of its training."""
    from darkroom.models.clip.load import save_clip

    settings = params.train_clip
    with atomic_folder(OUT) as folder:
        metadata = save_clip(folder, network)
        if trainer is not None:
            trainer.save_kept(folder, lambda place: save_clip(place, network))
        write_manifest(
            folder,
            KIND,
            source=settings.source,
            name=settings.pretrained.name or settings.pretrained.open_clip
            if settings.source == "pretrained" and settings.pretrained
            else None,
            long_captions=settings.long_captions,
            prompts=prompts,
            **metadata,
            **trained,
            files=file_hashes(folder),
        )


def _score(params: Params, catalog: Catalog, prompts: Prompts, device: torch.device) -> None:
    """Score the weights as they were written, and write how it was done."""
    from darkroom.data.reader import ImageShards
    from darkroom.metrics.libraries import library_versions
    from darkroom.metrics.retrieval_scores import ERROR, RETRIEVAL
    from darkroom.models.clip.captions import CaptionedImages
    from darkroom.models.clip.load import load_clip
    from darkroom.models.clip.scores import Examples

    settings = params.train_clip.evaluate
    clip = load_clip(OUT).to(device)
    shards = ImageShards.open_parts(list(catalog.parts), settings.split)
    images = CaptionedImages(shards, clip.context_length, clip.truncate)
    examples = Examples(images, prompts, settings.images, settings.batch)
    found = examples.scored(clip.images, lambda tokens: clip.tokens(tokens)[0], device) if examples.count else {}
    scores = found | {"images": examples.count, "captions": len(examples.texts)}
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
        "baselines": {"zero_shot_accuracy": {"constant": examples.constant}} if "zero_shot_accuracy" in found else {},
        "formulas": {score.name: score.formula for score in RETRIEVAL if score.name in found} | {"se": ERROR},
    }
    write_json(CARD, card)
    print("  ".join(f"{name} {value:.4g}" for name, value in scores.items()))


def _write_none() -> None:
    """Write that there is no CLIP: no embeddings are then made, no decoder and no prior trained."""
    write_curves(CURVES, [])
    with atomic_folder(OUT) as folder:
        write_manifest(folder, KIND, source="none", weights=None, files={})
    for path in (METRICS, CARD):
        write_json(path, {})
    print(f"{NO_CLIP}: no CLIP, no embeddings, no decoder, no prior")


def run(params: Params) -> None:
    """Train the CLIP, or take a published one, write it with its averaged weights, and score it."""
    for path in (OUT, CURVES, METRICS, CARD):
        require_writable(path)
    if params.train_clip.source == "none":
        _write_none()
        return
    _train(params)


def _train(params: Params) -> None:
    # Imported here: no CLIP needs no torch.
    from darkroom.data.catalog import load_catalog
    from darkroom.data.reader import ImageShards
    from darkroom.device import set_up_device
    from darkroom.models.clip.captions import CaptionedImages, prompts_of, require_captions
    from darkroom.models.clip.load import read_pretrained
    from darkroom.models.clip.openclip import read_open_clip
    from darkroom.models.clip.scores import Examples
    from darkroom.training.initial import downloads
    from darkroom.training.loop import train
    from darkroom.training.trainer import Places

    settings, training = params.train_clip, params.train_clip.training
    device = set_up_device(training.threads, params.run.device)
    catalog = load_catalog()
    parts = list(catalog.parts)
    train_shards, val_shards = (ImageShards.open_parts(parts, split) for split in ("train", "val"))
    truncate = settings.long_captions == "truncate"

    def captioned(shards: ImageShards, context: int) -> CaptionedImages:
        return CaptionedImages(shards, context, truncate, training.seed)

    def prompts_in(images: CaptionedImages) -> Prompts:
        return prompts_of(images, catalog.classes, settings.evaluate.prompts, settings.evaluate.captions)

    if settings.source == "pretrained":
        given = settings.pretrained
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
        write_curves(CURVES, [])
        prompts = prompts_in(captioned(train_shards, network.context_length))
        _write(network, params, prompts, {"images_seen": 0, "selected": "last", "best_validation": None})
        _score(params, catalog, prompts, device)
        return
    assert settings.trained is not None
    context = settings.trained.model.context_length
    with open_state("train_clip") as state:
        train_set, val_set = (captioned(shards, context) for shards in (train_shards, val_shards))
        require_captions(train_set)
        prompts, evaluate = prompts_in(train_set), settings.evaluate
        scorer = Examples(val_set, prompts, evaluate.images, evaluate.batch, training.validate_every)
        recipe = build(params, train_set, val_set, scorer if scorer.count else None)
        model = recipe.model
        parameters = sum(p.numel() for p in model.parameters())
        print(f"{parameters:,} parameters, {len(train_set):,} images, {len(train_set.texts):,} captions that differ")
        trainer = train(recipe, training, params.run, Places(state, CURVES, LOGS))
        with trainer.averaged():
            _write(model, params, prompts, {"images_seen": trainer.images, **trainer.metadata()}, trainer)
        _score(params, catalog, prompts, device)
