"""The selection: the parts that the tokenizer is trained on.

The selection is written by `catalog`, which reads all parts, and `train_tokenizer` depends on it alone. A part outside
of the selection does not change it, so adding such a part retrains no tokenizer and encodes no other part again.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from darkroom.artifacts.manifest import ArtifactError, manifest_hash, read_manifest, write_manifest
from darkroom.data.images import ImageSpec
from darkroom.data.layout import KIND as SHARDS_KIND
from darkroom.data.layout import SHARDS
from darkroom.data.reader import same_spec

KIND = "selection"
SELECTION = Path("data/selection")


@dataclass(frozen=True)
class Selection:
    """The selected parts, with their hashes at the time of the selection.

    parts: the SHA-256 of the manifest of each part.
    spec: size and channels of every image.
    fingerprint: the SHA-256 of the manifest of the selection, its fingerprint.
    """

    parts: dict[str, str]
    spec: ImageSpec
    fingerprint: str


def write_selection(folder: Path, parts: Sequence[str], root: Path = SHARDS) -> None:
    """Write manifest.json into `folder`: kind "selection", image, and name and SHA-256 of each part.

    Raises:
        ArtifactError: a part is missing or damaged, or its images differ from the others; the message names it.
    """
    manifests = {part: read_manifest(root / part, SHARDS_KIND) for part in sorted(parts)}
    spec = same_spec(manifests)
    chosen = [{"name": part, "sha256": manifest_hash(root / part)} for part in manifests]
    write_manifest(folder, KIND, image=spec.metadata(), parts=chosen)


def load_selection(folder: Path = SELECTION, root: Path = SHARDS) -> Selection:
    """Return the selection in `folder`, after checking that the parts in `root` have not changed since.

    Raises:
        ArtifactError: missing or damaged, or a part was written again since; the message names file or part.
    """
    manifest = read_manifest(folder, KIND)
    parts = {part["name"]: part["sha256"] for part in manifest["parts"]}
    for part, sha256 in parts.items():
        read_manifest(root / part, SHARDS_KIND)  # raises where it is missing
        if manifest_hash(root / part) != sha256:
            raise ArtifactError(
                f"{folder} does not fit the part `{part}`, which was written again since: run `dvc repro`."
            )
    return Selection(parts, ImageSpec.of(manifest), manifest_hash(folder))
