"""Write the outputs of sampling and scoring stages that have nothing to sample or score. Needs no torch."""

from pathlib import Path

from darkroom.artifacts.atomic import atomic_folder, require_writable, write_json
from darkroom.artifacts.manifest import read_manifest, write_manifest

NEAREST = Path("samples/nearest")  # the closest pairs of samples and training images


def write_no_samples(folder: Path, reason: str) -> None:
    """Write samples without an image."""
    with atomic_folder(folder) as temporary:
        write_manifest(temporary, "samples", images=0, classes=[], sampler={}, reason=reason, files={})
    print(f"{reason}: no images")


def unscored(samples: Path, metrics: Path, card: Path) -> bool:
    """Return whether `samples` holds no image; if so, write empty metrics, an empty card and no pairs."""
    for path in (metrics, card, NEAREST / samples.name):
        require_writable(path)
    if read_manifest(samples, "samples")["images"]:
        return False
    for path in (metrics, card):
        write_json(path, {})
    with atomic_folder(NEAREST / samples.name) as folder:
        write_manifest(folder, "nearest", images=0, reason="there are no images", files={})
    print(f"{samples} holds no images: no scores")
    return True
