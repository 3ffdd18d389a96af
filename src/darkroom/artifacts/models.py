"""Kinds and folders of the networks that later stages open, and which are trained. Imports no torch."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from darkroom.artifacts.manifest import ArtifactError, open_artifact, read_manifest

# The kinds in the manifests of the networks.
TEACHER, SCENE_READER, CLIP, PRIOR, DECODER = "teacher", "scene_reader", "clip", "prior", "decoder"
CLASSIFIER, GENERATOR, DISTILLED = "classifier", "generator", "distilled"

CLIP_FOLDER, PRIOR_FOLDER, DECODER_FOLDER = Path("models/clip"), Path("models/prior"), Path("models/decoder")


def trained(names: Sequence[str], root: Path = DECODER_FOLDER) -> list[str]:
    """Return the names of the U-Nets that were trained, in the given order."""
    return [name for name in names if read_manifest(root / name, DECODER)["trained"]]


def conditioned_on_clip(names: Sequence[str], root: Path = DECODER_FOLDER) -> bool:
    """Return whether at least one of the U-Nets was trained and is conditioned on CLIP."""
    return any(read_manifest(root / name, DECODER)["clip"] is not None for name in trained(names, root))


def generator_manifest(folder: Path) -> dict[str, Any]:
    """Return the metadata of the generator in `folder`, after checking its manifest and the hashes of its files.

    Raises:
        ArtifactError: it is missing or damaged, or there is no generator: `train_generator.kind` was none.
    """
    manifest = open_artifact(folder, GENERATOR)
    if not manifest.get("trained", True):
        raise ArtifactError(
            f"{folder} holds no generator, because {manifest['reason']}: choose one, and run "
            "`dvc repro train_generator`."
        )
    return manifest
