"""What sampling and scoring stages write where there is nothing to sample or to score. It needs no torch."""

from pathlib import Path

from darkroom.artifacts.atomic import atomic_folder, require_writable, write_json
from darkroom.artifacts.manifest import read_manifest, write_manifest


def write_no_samples(folder: Path, reason: str) -> None:
    """Write samples without an image."""
    with atomic_folder(folder) as temporary:
        write_manifest(temporary, "samples", images=0, classes=[], sampler={}, reason=reason, files={})
    print(f"{reason}: no images")


def unscored(samples: Path, metrics: Path, card: Path) -> bool:
    """Return whether `samples` holds no image, after writing empty metrics and an empty card in that case."""
    for path in (metrics, card):
        require_writable(path)
    if read_manifest(samples, "samples")["images"]:
        return False
    for path in (metrics, card):
        write_json(path, {})
    print(f"{samples} holds no images: no scores")
    return True
