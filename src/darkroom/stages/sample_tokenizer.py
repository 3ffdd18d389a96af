"""Stage `sample_tokenizer`: a tokenizer that generates in, `samples/tokenizer/` out; of any other, an empty one."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from darkroom.artifacts.atomic import atomic_folder, require_writable
from darkroom.artifacts.hashing import sha256_file
from darkroom.artifacts.manifest import manifest_hash, read_manifest, write_manifest
from darkroom.data.sample import Sample
from darkroom.models.kinds import TOKENIZERS
from darkroom.models.tokenizers.sample_settings import Params

OUT, MODEL = Path("samples/tokenizer"), Path("models/tokenizer")
_COLUMNS, _ROWS = 10, 10


def numbered(
    batches: Iterable[NDArray[np.uint8]], classes: list[str], kept: list[NDArray[np.uint8]]
) -> Iterator[Sample]:
    """Yield images as samples with their class, if any, and keep the first ones for the grid."""
    from darkroom.data.images import to_pil

    number = 0
    for batch in batches:
        for image in batch:
            place = number % len(classes) if classes else 0
            if place < _COLUMNS and len(kept) < _ROWS * min(_COLUMNS, len(classes) or _COLUMNS):
                kept.append(image)
            yield Sample(key=f"{number:08d}", image=to_pil(image), label=classes[place] if classes else None)
            number += 1
        print(f"{number:,} images")


def run(params: Params) -> None:
    """Generate images, with classes i modulo their number, and a grid; or say that this tokenizer does not generate."""
    require_writable(OUT)
    manifest = read_manifest(MODEL, "tokenizer")
    kind = manifest["tokenizer_kind"]
    if TOKENIZERS.has("sample", kind):
        _sample(params, manifest)
        return
    with atomic_folder(OUT) as folder:
        write_manifest(folder, "samples", images=0, classes=[], tokenizer_kind=kind, sampler={})
    print(f"the tokenizer `{kind}` does not generate: no images")


def _sample(params: Params, manifest: dict[str, Any]) -> None:
    # Imported here: a tokenizer that does not generate needs no torch.
    from darkroom.data.grid import image_grid, save_png
    from darkroom.data.shards import write_shards
    from darkroom.device import set_up_device
    from darkroom.models.tokenizers.load import load_tokenizer

    generate = TOKENIZERS.load("sample", manifest["tokenizer_kind"])
    settings, classes = params.sample_tokenizer, list(manifest.get("classes", []))
    device = set_up_device(settings.threads, params.run.device)
    model: Any = load_tokenizer(MODEL)[0]
    kept: list[NDArray[np.uint8]] = []
    with atomic_folder(OUT) as folder:
        batches = generate(model.to(device), settings, device)
        shards = write_shards(folder, numbered(batches, classes, kept), settings.shard_size, "png")
        columns = min(_COLUMNS, len(classes) or _COLUMNS, len(kept))
        save_png(folder / "grid.png", image_grid(np.stack(kept), columns=columns, scale=2))
        write_manifest(
            folder,
            "samples",
            images=settings.images,
            image_shape=manifest["image_shape"],
            classes=classes,
            tokenizer_kind=manifest["tokenizer_kind"],
            model=manifest_hash(MODEL),
            sampler=settings.model_dump(exclude={"threads", "shard_size"}),
            files={"grid.png": sha256_file(folder / "grid.png")},
            **shards,
        )
