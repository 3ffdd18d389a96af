"""Finds the original image of each sample: both have the same key."""

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from darkroom.artifacts.manifest import ArtifactError
from darkroom.data.reader import ImageShards


def original_rows(samples: ImageShards, originals: ImageShards, repeats: Mapping[str, int], where: Path) -> list[int]:
    """Return the row of the original of each sample.

    Args:
        samples: images sampled from the embeddings or captions of images of a split, with their keys, in any order.
        originals: the images of the split.
        repeats: which of several images with one key and caption is meant, see `data.draw.repeats`.
        where: the folder of the samples, for messages.

    Raises:
        ArtifactError: an original is missing, or has another caption; the message names the key.
    """
    rows: defaultdict[tuple[str, str | None], list[int]] = defaultdict(list)
    said: dict[str, str | None] = {}
    for row, (key, caption) in enumerate(zip(originals.keys, originals.captions, strict=True)):
        rows[key, caption].append(row)
        said[key] = caption
    found = []
    for place, (key, caption) in enumerate(zip(samples.keys, samples.captions, strict=True)):
        if key not in said:
            raise ArtifactError(
                f"{where} holds {key}, and no image of the split has that key: make the samples again (`dvc repro`)."
            )
        several, number = rows[key, caption], repeats.get(str(place), 0)
        if number >= len(several):
            raise ArtifactError(
                f"{where}: {key} was made for the caption {caption!r}, and its original has {said[key]!r}: "
                "make the samples again (`dvc repro`)."
            )
        found.append(several[number])
    return found
