"""Numbers the classes, counts the images, finds duplicates across parts."""

from darkroom.artifacts.atomic import atomic_folder, require_writable
from darkroom.data.catalog import CATALOG
from darkroom.data.catalog_writer import write_catalog
from darkroom.schemas.catalog import Params


def run(params: Params) -> None:
    """Write data/catalog from data/shards."""
    require_writable(CATALOG)
    with atomic_folder(CATALOG) as folder:
        manifest = write_catalog(folder, list(params.parts), params.catalog.grid_images)
    counts = ", ".join(f"{split} {images}" for split, images in manifest["images"].items())
    print(f"{len(manifest['classes'])} classes in {len(params.parts)} parts: {counts}")
    duplicates = manifest["duplicates"]
    if duplicates["images"]:
        print(
            f"{duplicates['images']} images are copies of another, {duplicates['across_splits']} of one in another "
            f"split; the first: {', '.join(duplicates['first'][0])}"
        )
