"""Finds the original image of each sample: both have the same key."""

from collections import defaultdict, deque
from pathlib import Path

from darkroom.artifacts.manifest import ArtifactError
from darkroom.data.reader import ImageShards


def original_rows(samples: ImageShards, originals: ImageShards, where: Path) -> list[int]:
    """Return the row of the original of each sample.

    Keys may occur in several parts. Of several images with one key and caption, the first belongs to the first sample,
    and so on.

    Args:
        samples: images sampled from the embeddings or captions of the first images of a split, with their keys, in
            their order.
        originals: the images of the split.
        where: the folder of the samples, for messages.

    Raises:
        ArtifactError: an original is missing, or has another caption; the message names the key.
    """
    rows: defaultdict[tuple[str, str | None], deque[int]] = defaultdict(deque)
    said: dict[str, str | None] = {}
    for row, (key, caption) in enumerate(zip(originals.keys, originals.captions, strict=True)):
        rows[key, caption].append(row)
        said[key] = caption
    found = []
    for key, caption in zip(samples.keys, samples.captions, strict=True):
        if key not in said:
            raise ArtifactError(
                f"{where} holds {key}, and no image of the split has that key: make the samples again (`dvc repro`)."
            )
        if not rows[key, caption]:
            raise ArtifactError(
                f"{where}: {key} was made for the caption {caption!r}, and its original has {said[key]!r}: "
                "make the samples again (`dvc repro`)."
            )
        found.append(rows[key, caption].popleft())
    return found
