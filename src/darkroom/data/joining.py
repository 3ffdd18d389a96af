"""Which stored image each sample was made of: they share their key."""

from pathlib import Path

from darkroom.artifacts.manifest import ArtifactError
from darkroom.data.reader import ImageShards


def original_rows(samples: ImageShards, originals: ImageShards, where: Path) -> list[int]:
    """Return the row of each sample's original.

    Args:
        samples: made of the embeddings or captions of images, under their keys.
        originals: the images of a split.
        where: the samples' folder, for messages.

    Raises:
        ArtifactError: there is no such original, or it has another caption; names the key.
    """
    rows = {key: row for row, key in enumerate(originals.keys)}
    captions, found = originals.captions, []
    for key, caption in zip(samples.keys, samples.captions, strict=True):
        if key not in rows:
            raise ArtifactError(
                f"{where} holds {key}, and no image of the split has that key: make the samples again (`dvc repro`)."
            )
        if caption != captions[rows[key]]:
            raise ArtifactError(
                f"{where}: {key} was made for the caption {caption!r}, and its original has {captions[rows[key]]!r}: "
                "make the samples again (`dvc repro`)."
            )
        found.append(rows[key])
    return found
