"""Stage `catalog`: number the classes, count the images, and find duplicates across parts."""

from collections.abc import Mapping
from typing import Any

from darkroom.artifacts.atomic import atomic_folder, require_writable
from darkroom.data.catalog import SELECTION, class_warnings, leakage_warnings
from darkroom.data.catalog_writer import PICTURES, write_catalog, write_picture, write_selection
from darkroom.data.damage import require_few
from darkroom.data.layout import CATALOG, SHARDS
from darkroom.errors import DarkroomError
from darkroom.params.ingest import CatalogParams
from darkroom.params.section import NO_FILE


def run(params: CatalogParams) -> None:
    """Write data/catalog, data/selection and the picture in samples/catalog from data/shards."""
    for path in (CATALOG, SELECTION, PICTURES):
        require_writable(path)
    require_few(params.parts, params.catalog.max_quarantined, SHARDS)
    with atomic_folder(CATALOG) as folder:
        manifest = write_catalog(folder, list(params.parts))
        if params.train_generator is not None and params.train_generator["captions"] != NO_FILE:
            _require_captions(manifest)
    with atomic_folder(SELECTION) as folder:
        write_selection(folder, params.train_tokenizer["parts"] or list(params.parts))
    with atomic_folder(PICTURES) as folder:
        write_picture(folder, CATALOG, params.catalog.grid_images)
    print(summary(manifest))


def _require_captions(manifest: Mapping[str, Any]) -> None:
    if not manifest["captions"]["train"]:
        raise DarkroomError(
            "The generator's `model.condition` is caption, but no image of the train split has one. Add captions "
            "(`parts` and the source's section in params.yaml), or set the condition to class or none and "
            f"`train_generator.captions` to {NO_FILE}."
        )


def summary(manifest: Mapping[str, Any]) -> str:
    """Return the summary of all parts for the log: counts, damaged samples and duplicates."""
    counts = ", ".join(f"{split} {images:,}" for split, images in manifest["images"].items())
    classes, parts = len(manifest["classes"]), len(manifest["parts"])
    text = f"{classes:,} class{'' if classes == 1 else 'es'} in {parts} part{'' if parts == 1 else 's'}: {counts}"
    unlabelled, duplicates = sum(manifest["unlabelled"].values()), manifest["duplicates"]
    if unlabelled:
        text += (
            f"\n{unlabelled:,} images have no label, but train_extractor and train_generator need one for each: "
            "set `ingest.default_label`, or leave the images out with `ingest.rules.label_missing`"
        )
    for line in (*class_warnings(manifest["counts"]), *leakage_warnings(manifest["leakage"])):
        text += f"\nwarning: {line}"
    if left_out := manifest["quarantine"]["quarantine"]:
        reasons = ", ".join(f"{reason} {count:,}" for reason, count in left_out.items())
        text += f"\nleft out, see `darkroom data`: {reasons}"
    if duplicates["images"]:
        text += (
            f"\n{duplicates['images']:,} images are duplicates, {duplicates['across_splits']:,} of an image in "
            f"another split; the first: {', '.join(duplicates['first'][0])}"
        )
    return text
