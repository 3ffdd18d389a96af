"""The networks that later stages ask for: kinds, folders, and which of them are trained. Answers without torch."""

from collections.abc import Sequence
from pathlib import Path

from darkroom.artifacts.manifest import read_manifest

# The kinds in their manifests.
TEACHER, SCENE_READER, CLIP, PRIOR, DECODER = "teacher", "scene_reader", "clip", "prior", "decoder"

CLIP_FOLDER, PRIOR_FOLDER, DECODER_FOLDER = Path("models/clip"), Path("models/prior"), Path("models/decoder")


def trained(names: Sequence[str], root: Path = DECODER_FOLDER) -> list[str]:
    """Return those of some U-Nets that were trained."""
    return [name for name in names if read_manifest(root / name, DECODER)["trained"]]


def told_of_clip(names: Sequence[str], root: Path = DECODER_FOLDER) -> bool:
    """Return whether one of some U-Nets was trained and is told of a CLIP."""
    return any(read_manifest(root / name, DECODER)["clip"] is not None for name in trained(names, root))
