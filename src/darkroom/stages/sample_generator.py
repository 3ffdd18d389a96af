"""Stage `sample_generator`: models in, `samples/generator/` out."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from darkroom.artifacts.atomic import atomic_folder, require_writable
from darkroom.artifacts.hashing import sha256_file
from darkroom.artifacts.manifest import ArtifactError, manifest_hash, open_artifact, write_manifest
from darkroom.data.grid import image_grid, save_png
from darkroom.data.images import ImageSpec, to_pil
from darkroom.data.sample import Sample
from darkroom.data.shards import write_shards
from darkroom.device import set_up_device
from darkroom.models.generators.sample_settings import Params
from darkroom.models.generators.sampler import generate
from darkroom.models.kinds import GENERATORS
from darkroom.models.tokenizers.load import load_tokenizer

OUT, MODEL = Path("samples/generator"), Path("models/generator")
_COLUMNS, _ROWS = 10, 10


def numbered(
    batches: Iterable[NDArray[np.uint8]], classes: list[str], kept: list[NDArray[np.uint8]]
) -> Iterator[Sample]:
    """Yield images as samples with their class, and keep the first ones of the first classes for the grid."""
    number = 0
    for batch in batches:
        for image in batch:
            place = number % len(classes)
            if place < _COLUMNS and len(kept) < _ROWS * min(_COLUMNS, len(classes)):
                kept.append(image)
            yield Sample(key=f"{number:08d}", image=to_pil(image), label=classes[place])
            number += 1
        print(f"{number:,} images")


def run(params: Params) -> None:
    """Generate images, class i modulo the number of classes, and a grid with one class a column."""
    settings = params.sample_generator.common
    require_writable(OUT)
    device = set_up_device(settings.threads, params.run.device)
    manifest = open_artifact(MODEL, "generator")
    tokenizer, tokenizer_hash = load_tokenizer(Path("models/tokenizer"), ImageSpec.of(manifest).shape)
    if manifest["tokenizer"] != tokenizer_hash:
        raise ArtifactError(
            f"{MODEL} was trained on latents of another tokenizer than models/tokenizer holds: "
            "train it again (`dvc repro train_generator`)."
        )
    kind = manifest["generator_kind"]
    sampling = getattr(params.sample_generator, kind, None)
    if sampling is None:
        raise ArtifactError(
            f"{MODEL} holds a generator of the kind `{kind}`, and params.yaml chooses another: train it again "
            "(`dvc repro train_generator`)."
        )
    sampler = GENERATORS.load("sampler", kind).open(
        MODEL, manifest, tokenizer.to(device), settings.weights, settings.sigma_rel
    )
    batches = generate(sampler.to(device), settings, sampling)
    kept: list[NDArray[np.uint8]] = []
    with atomic_folder(OUT) as folder:
        shards = write_shards(folder, numbered(batches, manifest["classes"], kept), settings.shard_size, "png")
        columns = min(_COLUMNS, len(manifest["classes"]))
        save_png(folder / "grid.png", image_grid(np.stack(kept), columns=columns, scale=2))
        write_manifest(
            folder,
            "samples",
            images=settings.images,
            image_shape=list(ImageSpec.of(manifest).shape),
            classes=manifest["classes"],
            model=manifest_hash(MODEL),
            sampler={**settings.model_dump(exclude={"threads", "shard_size"}), **sampling.model_dump()},
            files={"grid.png": sha256_file(folder / "grid.png")},
            **shards,
        )
