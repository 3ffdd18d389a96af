"""Numbers the classes, counts the images, finds duplicates across parts."""

from darkroom.artifacts.atomic import atomic_folder, require_writable
from darkroom.data.catalog import CATALOG
from darkroom.data.catalog_writer import write_catalog
from darkroom.data.selection import SELECTION, write_selection
from darkroom.schemas.catalog import Params


def run(params: Params) -> None:
    """Write data/catalog and data/selection from data/shards."""
    for path in (CATALOG, SELECTION):
        require_writable(path)
    with atomic_folder(CATALOG) as folder:
        manifest = write_catalog(folder, list(params.parts), params.catalog.grid_images)
    with atomic_folder(SELECTION) as folder:
        write_selection(folder, params.train_tokenizer.parts or list(params.parts))
    counts = ", ".join(f"{split} {images}" for split, images in manifest["images"].items())
    print(f"{len(manifest['classes'])} classes in {len(params.parts)} parts: {counts}")
    duplicates = manifest["duplicates"]
    if duplicates["images"]:
        print(
            f"{duplicates['images']} images are copies of another, {duplicates['across_splits']} of one in another "
            f"split; the first: {', '.join(duplicates['first'][0])}"
        )
