"""Stage `sample_generator`: sample the generator, and write `samples/generator/`; empty without a generator."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from darkroom.artifacts.atomic import require_writable
from darkroom.artifacts.manifest import manifest_hash, read_manifest
from darkroom.artifacts.models import DISTILLED, GENERATOR, generator_manifest
from darkroom.errors import DarkroomError
from darkroom.models.generators.kind_settings import OF_ROWS
from darkroom.models.generators.sample_settings import Common, Params
from darkroom.processes.launch import rank
from darkroom.stages.empty import write_no_samples
from darkroom.terminal.terminal import with_progress
from darkroom.training.state import open_state

if TYPE_CHECKING:
    import torch
    from numpy.typing import NDArray

    from darkroom.models.generators.conditions import ConditionSource
    from darkroom.models.generators.sampler import KeptBatches, Sampler

OUT, MODEL, FEW = Path("samples/generator"), Path("models/generator"), Path("models/distilled")
# Keys of earlier versions: in the manifest they stay null, so that equal samples keep equal bytes.
_REMOVED = ("sigma_rel", "average_images", "weaker_sigma_rel", "weaker_images")


def run(params: Params) -> None:
    """Generate images of the classes in `labels`, or of stored conditions, and a grid with one class per column.

    Batches are kept in the state folder until the stage is done, so after a kill it continues with the next one. With
    several processes each makes its part of the batches, and the first writes all.
    """
    require_writable(OUT)
    manifest = read_manifest(MODEL, GENERATOR)
    if not manifest.get("trained", True):
        write_no_samples(OUT, manifest["reason"])
        return
    _generate(params)


def _generate(params: Params) -> None:
    # Imported here: without a generator, torch is not needed.
    from darkroom.data.images import ImageSpec
    from darkroom.device import set_up_device
    from darkroom.models.generators.conditions import distribution
    from darkroom.models.generators.load import open_generator
    from darkroom.models.generators.sampler import KeptBatches
    from darkroom.stages.generated import write_generated

    settings = params.sample_generator.common
    place = rank()
    processes = None
    if place is not None and place.size > 1:
        from darkroom.training.processes import Processes  # imports accelerate, which one process does not need

        processes = Processes(settings.processes)
    device = set_up_device(settings.threads, params.run.device)
    manifest = generator_manifest(MODEL)
    few = None if params.train_distilled.kind == "none" else FEW
    sampler, sampling = open_generator(MODEL, manifest, params.sample_generator, settings, device, few)
    condition = manifest.get("condition", "class")
    if condition == "class":
        classes = distribution(settings.labels, manifest.get("class_counts"))
        settings = settings.model_copy(update={"labels": classes})
    conditions = _conditions(manifest, settings)
    with open_state("sample_generator") as state:
        folder = KeptBatches.place(state, _name(device)) if processes is None or processes.first else None
        folder = folder if processes is None else processes.collect(folder)[0]
        assert folder is not None  # the first process has found it
        batches = KeptBatches(folder, settings)
        _sample(batches, sampler, settings, sampling, conditions, *(processes.division if processes else (0, 1)))
        if processes is not None:
            processes.collect(None)  # all batches are done
            if not processes.first:
                return
        if missing := batches.missing():
            raise DarkroomError(f"{folder} is missing the batch of image {missing[0]:,}: run the same command again.")
        numbers = np.arange(settings.images)
        labels = None if conditions.label is None else conditions.label(numbers)
        write_generated(
            OUT,
            batches,
            manifest["classes"],
            settings.shard_size,
            images=settings.images,
            image_shape=ImageSpec.of(manifest).shape,
            labels=labels,
            captions=None if conditions.caption is None else conditions.caption(numbers),
            npz=settings.npz,
            model=manifest_hash(MODEL),
            images_seen=_images_seen(manifest, few),
            distribution=_distribution(settings, condition, manifest["classes"], labels),
            sampler={
                **settings.protocol(),
                **({"split": settings.split} if condition in OF_ROWS else {}),
                **sampling.model_dump(),
                **dict.fromkeys(_REMOVED),
                **({} if few is None else {"distilled": manifest_hash(few)}),
            },
            **({} if condition == "class" else {"condition": condition}),
        )
        batches.remove()


def _distribution(
    settings: Common, condition: str, classes: Sequence[str], labels: NDArray[np.int64] | None
) -> str | dict[str, int]:
    """Return the distribution of the samples' classes, for the scores: by a word, or the images of each class."""
    if labels is None or condition != "class":
        return "frequency"
    if isinstance(settings.labels, str):
        return settings.labels
    return dict(Counter(classes[number] for number in labels.tolist()))


def _images_seen(manifest: Mapping[str, Any], distilled: Path | None) -> int | None:
    """Return the images that the network has seen in its training and its distillation."""
    base = manifest.get("images_seen")
    return base if base is None or distilled is None else base + read_manifest(distilled, DISTILLED)["images_seen"]


def _name(device: torch.device) -> str:
    import torch

    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def _conditions(manifest: Mapping[str, Any], settings: Common) -> ConditionSource:
    """Return the condition of each image: a class, none, or the stored conditions of a split."""
    from darkroom.data.embeddings import EMBEDDING_PARTS
    from darkroom.models.generators.conditions import NOTHING, asked_classes, asked_stored, class_rule, open_stored

    condition, classes = manifest.get("condition", "class"), manifest["classes"]
    if condition == "class":
        key = "sample_generator.common.labels"
        assert settings.labels is not None  # `_generate` has chosen
        return asked_classes(class_rule(settings.labels, classes, manifest.get("class_counts"), key))
    if condition == "none":
        return NOTHING
    if condition == "caption":
        from darkroom.data.reader import ImageShards
        from darkroom.models.generators.captions import asked_captions

        images = ImageShards.open_parts(manifest["parts"], settings.split)
        return asked_captions(images, classes, manifest["context_length"])
    return asked_stored(open_stored(manifest, settings.split, EMBEDDING_PARTS), condition, classes)


def _sample(
    batches: KeptBatches,
    sampler: Sampler,
    settings: Common,
    sampling: Any,
    conditions: ConditionSource,
    rank: int,
    processes: int,
) -> None:
    """Sample the missing batches of one process."""
    from darkroom.models.generators.sampler import generate

    starts = batches.missing(rank, processes)
    total = len(range(0, settings.images, settings.batch)[rank::processes])
    if len(starts) < total:
        print(f"{total - len(starts):,} of {total:,} batches are done: continuing with the others")
    generated = generate(sampler, settings, sampling, starts, conditions)
    images_left = sum(min(settings.batch, settings.images - start) for start in starts)
    for start, images in zip(starts, with_progress(generated, images_left, "sampled"), strict=True):
        batches.keep(start, images)
