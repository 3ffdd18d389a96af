"""Stage `ingest@PART`: read a source and write `data/shards/PART/`."""

import shutil
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from darkroom.artifacts.atomic import atomic_folder, require_writable
from darkroom.data.grouping import LOOKS
from darkroom.data.images import ImageSpec
from darkroom.data.layout import SHARDS
from darkroom.data.parts import Policy, tars_of, write_part
from darkroom.data.pipeline import outcomes
from darkroom.data.preparing import Preparation
from darkroom.data.sources import open_source, slice_of
from darkroom.data.sources.walk import passed_over, passed_over_text
from darkroom.data.splits import SPLITS
from darkroom.params.ingest import Ingest, Params
from darkroom.params.parts import settings_of
from darkroom.terminal.terminal import each_with_progress

LOGS = Path("logs")


def preparation(settings: Ingest) -> Preparation:
    """Return the preparation of images from the section `ingest`."""
    return Preparation(
        spec=ImageSpec(settings.image_size, settings.channels, settings.format),
        crop=settings.crop,
        resample=settings.resample,
        seed=settings.split_seed,
        max_pixels=settings.max_pixels,
        min_size=settings.min_size,
        quality=settings.quality,
        fit=settings.fit,
        pad_colour=settings.pad_colour,
    )


def run(params: Params, part: str) -> None:
    """Write data/shards/PART."""
    settings, chosen = params.ingest, params.parts[part]
    require_writable(SHARDS / part)
    details = settings_of(part, chosen, getattr(params, chosen.source))
    source = open_source(chosen, details, settings.group.partition(":")[2])
    start, stop = slice_of(source, part, chosen.start, chosen.stop)
    unit = getattr(source, "unit", "images")
    which = f"one in {chosen.every:,} of " if chosen.every > 1 else ""
    print(f"{which}{unit} {start} to {'the end' if stop is None else stop - 1} of {chosen.source}")
    image_settings = preparation(settings)
    tars = tars_of(source)
    entries = islice(source.entries(start, stop), 0, None, chosen.every)
    results = outcomes(
        source, entries, image_settings, params.run.ingest_processes, tars is None, settings.group in LOOKS
    )
    images = None if stop is None or unit != "images" else len(range(start, stop, chosen.every))
    one_of = {"every": chosen.every} if chosen.every > 1 else {}
    failed = LOGS / f"ingest-{part}"
    with atomic_folder(SHARDS / part) as folder:
        manifest = write_part(
            folder,
            part,
            each_with_progress(results, images, part),
            source={"name": chosen.source, "start": start, "stop": stop, **one_of, **source.metadata()},
            preparation=image_settings,
            policy=Policy(
                settings.rules.model_dump(),
                settings.splits.model_dump(),
                settings.split_seed,
                settings.default_label,
                settings.group,
            ),
            shard_size=settings.shard_size,
            mirror=getattr(details, "mirror", False),
            logs=failed,
            tars=tars,
        )
    shutil.rmtree(failed, ignore_errors=True)  # the list of an earlier run, which `darkroom data` would show
    print(summary(manifest))


def summary(manifest: Mapping[str, Any]) -> str:
    """Return the summary of a part for the log: images by split, and samples by action and reason."""
    splits, wrong = manifest["splits"], manifest["quarantine"]
    shards = sum(len(metadata["shards"]) for metadata in splits.values())
    images = sum(metadata["images"] for metadata in splits.values())
    counts = ", ".join(f"{split} {splits[split]['images']:,}" for split in SPLITS)
    text = f"{images:,} images in {shards:,} shards: {counts}"
    if transparent := manifest.get("transparent"):
        stored = "stored with alpha" if manifest["image"]["channels"] == "RGBA" else "laid on white (`ingest.channels`)"
        text += f"\n{transparent:,} with transparent pixels: {stored}"
    if groups := manifest.get("groups"):
        text += (
            f"\nsplit by group, by {groups['rule']}: {groups['groups']:,} groups, the largest of {groups['largest']:,} "
            f"images, as diverse as {groups['effective']:,.0f} of equal size"
        )
    for action, done in (("quarantine", "left out"), ("repair", "repaired"), ("keep", "kept as they are")):
        if wrong[action]:
            reasons = ", ".join(f"{reason} {count:,}" for reason, count in wrong[action].items())
            text += f"\n{done}, listed in quarantine.parquet: {reasons}"
    for line in passed_over_text(passed_over(manifest["source"])):
        text += f"\npassed over, {line}"
    return text
