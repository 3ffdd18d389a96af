"""Reads one part of the data, checks and crops it, and writes it as shards with an index."""

from darkroom.artifacts.atomic import atomic_folder, require_writable
from darkroom.data.images import ImageSpec
from darkroom.data.layout import SHARDS
from darkroom.data.parts import write_part
from darkroom.data.sources import open_source, slice_of
from darkroom.schemas.ingest import Params


def run(params: Params, part: str) -> None:
    """Write data/shards/PART."""
    settings, chosen = params.ingest, params.parts[part]
    require_writable(SHARDS / part)
    source = open_source(chosen.source, getattr(params, chosen.source, None))
    numbers = slice_of(source, part, chosen.start, chosen.stop)
    print(f"images {numbers.start} to {numbers.stop - 1} of {chosen.source}")
    with atomic_folder(SHARDS / part) as folder:
        manifest = write_part(
            folder,
            part,
            source.samples(numbers.start, numbers.stop),
            source={"name": chosen.source, "start": numbers.start, "stop": numbers.stop},
            spec=ImageSpec(settings.image_size, settings.channels, settings.format),
            resample=settings.resample,
            shard_size=settings.shard_size,
            shares=settings.splits.model_dump(),
            split_seed=settings.split_seed,
        )
    counts = (f"{split} {facts['images']}" for split, facts in manifest["splits"].items())
    shards = sum(len(facts["shards"]) for facts in manifest["splits"].values())
    print(f"{len(numbers)} images in {shards} shards: {', '.join(counts)}")
