"""Stage `sample_generator`: models in, `samples/generator/` out."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from darkroom.artifacts.atomic import require_writable
from darkroom.artifacts.manifest import manifest_hash, open_artifact
from darkroom.data.images import ImageSpec
from darkroom.device import set_up_device
from darkroom.errors import DarkroomError
from darkroom.models.generators.batches import KeptBatches
from darkroom.models.generators.labels import ClassOf, class_rule
from darkroom.models.generators.load import open_generator
from darkroom.models.generators.sample_settings import Common, Params
from darkroom.models.generators.sampler import Sampler, generate
from darkroom.processes.launch import rank
from darkroom.stages.generated import write_generated
from darkroom.terminal.progress import with_progress
from darkroom.training.state import open_state

OUT, MODEL = Path("samples/generator"), Path("models/generator")
_TIMES = 8  # columns of the strip


def run(params: Params) -> None:
    """Generate images of the classes that `labels` says, and a grid with one class a column.

    Batches are kept in the state folder until the stage is done: after a kill it goes on with the next one. Of several
    processes each makes its part of them, and the first writes all.
    """
    settings = params.sample_generator.common
    require_writable(OUT)
    place = rank()
    processes = None
    if place is not None and place.size > 1:
        from darkroom.training.processes import Processes  # accelerate, which one process does without

        processes = Processes(settings.processes)
    device = set_up_device(settings.threads, params.run.device)
    manifest = open_artifact(MODEL, "generator")
    sampler, sampling = open_generator(MODEL, manifest, params.sample_generator, settings, device)
    class_of = class_rule(
        settings.labels, manifest["classes"], manifest.get("class_counts"), "sample_generator.common.labels"
    )
    with open_state("sample_generator") as state:
        folder = KeptBatches.place(state) if processes is None or processes.first else None
        folder = folder if processes is None else processes.from_first(folder)
        assert folder is not None  # the first has said it
        batches = KeptBatches(folder, settings)
        _sample(batches, sampler, settings, sampling, class_of, *(processes.division if processes else (0, 1)))
        if processes is not None:
            processes.collect(None)  # all have made theirs
            if not processes.first:
                return
        if missing := batches.missing():
            raise DarkroomError(f"{folder} has lost the batch of image {missing[0]:,}: run the same command again.")
        labels = class_of(np.arange(settings.images))
        write_generated(
            OUT,
            batches,
            manifest["classes"],
            settings.shard_size,
            images=settings.images,
            image_shape=ImageSpec.of(manifest).shape,
            labels=labels,
            npz=settings.npz,
            strip=_strip(sampler, settings, sampling, class_of, labels),
            model=manifest_hash(MODEL),
            sampler={**settings.protocol(), **sampling.model_dump()},
        )
        batches.remove()


def _sample(
    batches: KeptBatches,
    sampler: Sampler,
    settings: Common,
    sampling: Any,
    class_of: ClassOf,
    rank: int,
    processes: int,
) -> None:
    """Sample the batches that are one process's own and not there yet."""
    starts = batches.missing(rank, processes)
    total = len(range(0, settings.images, settings.batch)[rank::processes])
    if len(starts) < total:
        print(f"{total - len(starts):,} of {total:,} batches are there: continues with the others")
    made = generate(sampler, settings, sampling, starts, class_of)
    for start, images in zip(starts, with_progress(made, len(starts) * settings.batch, "sampled"), strict=True):
        batches.keep(start, images)


def _strip(
    sampler: Sampler, settings: Common, sampling: Any, class_of: ClassOf, labels: NDArray[np.int64]
) -> NDArray[np.uint8] | None:
    """Return what is predicted on the way of the first image of each of the first classes, (rows, times, C, H, W).

    Raises:
        DarkroomError: the kind of generator has no steps to look at.
    """
    if not settings.strip:
        return None
    if not hasattr(sampler, "trajectory"):
        raise DarkroomError(
            "`sample_generator.common.strip` draws images on their way from noise, and this kind of generator has no "
            "such steps: set it to 0."
        )
    chosen = np.unique(labels, return_index=True)[1][: settings.strip]
    rows: dict[int, NDArray[np.uint8]] = {}
    for start in np.unique(chosen - chosen % settings.batch):  # in their own batches: the last column is their image
        numbers, mine = (
            np.arange(start, start + settings.batch),
            chosen[chosen // settings.batch == start // settings.batch],
        )
        of = torch.from_numpy(class_of(numbers)).to(sampler.device)
        found = sampler.trajectory(numbers.tolist(), of, settings.seed, sampling, (mine - start).tolist(), _TIMES)
        rows |= dict(zip(mine.tolist(), found.cpu().numpy(), strict=True))
    return np.stack([rows[number] for number in chosen.tolist()])
