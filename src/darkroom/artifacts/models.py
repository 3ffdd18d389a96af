"""Kinds and folders of the networks that later stages open, and which of them are trained. It imports no torch."""

from collections.abc import Sequence
from pathlib import Path

from darkroom.artifacts.manifest import read_manifest

# The kinds in the manifests of the networks.
TEACHER, SCENE_READER, CLIP, PRIOR, DECODER = "teacher", "scene_reader", "clip", "prior", "decoder"
CLASSIFIER = "classifier"

CLIP_FOLDER, PRIOR_FOLDER, DECODER_FOLDER = Path("models/clip"), Path("models/prior"), Path("models/decoder")


def trained(names: Sequence[str], root: Path = DECODER_FOLDER) -> list[str]:
    """Return the names of the U-Nets that were trained, in the given order."""
    return [name for name in names if read_manifest(root / name, DECODER)["trained"]]


def conditioned_on_clip(names: Sequence[str], root: Path = DECODER_FOLDER) -> bool:
    """Return whether at least one of the U-Nets was trained and is conditioned on CLIP."""
    return any(read_manifest(root / name, DECODER)["clip"] is not None for name in trained(names, root))
