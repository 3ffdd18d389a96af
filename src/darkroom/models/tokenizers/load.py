"""Opens `models/tokenizer/`, whatever kind stands there."""

from pathlib import Path

from darkroom.artifacts.manifest import ArtifactError, manifest_hash, open_artifact
from darkroom.models.kinds import TOKENIZERS
from darkroom.models.tokenizers.protocol import KIND, Tokenizer


def load_tokenizer(folder: Path, image_shape: tuple[int, int, int] | None = None) -> tuple[Tokenizer, str]:
    """Return the tokenizer in `folder`, in evaluation mode, and its identity, the hash of its manifest.

    Raises:
        ArtifactError: missing, damaged, or made for images of another shape than `image_shape` (C, H, W).
    """
    manifest = open_artifact(folder, KIND)
    if image_shape is not None and tuple(manifest["image_shape"]) != tuple(image_shape):
        raise ArtifactError(
            f"{folder} was trained on images of shape {manifest['image_shape']}, and these are {list(image_shape)}: "
            "train the tokenizer on them (`dvc repro train_tokenizer`)."
        )
    kind: type[Tokenizer] = TOKENIZERS.load("network", manifest["tokenizer_kind"])
    return kind.from_pretrained(folder), manifest_hash(folder)
