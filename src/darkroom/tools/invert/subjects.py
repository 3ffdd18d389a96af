"""What `darkroom invert` is asked of: stored images or image files, and the conditions that they are read under."""

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from darkroom.artifacts.manifest import ArtifactError
from darkroom.data.catalog import load_catalog
from darkroom.data.draw import drawn
from darkroom.data.images import ImageSpec
from darkroom.data.reader import ImageShards
from darkroom.errors import DarkroomError
from darkroom.models.clip.load import load_clip
from darkroom.models.generators.conditions import Condition, condition_of
from darkroom.models.generators.kind_settings import TEXTS
from darkroom.tools.images import preparation, read_image
from darkroom.tools.sample.classes import MODEL, numbers_of
from darkroom.tools.sample.texts import stored_texts

# From numbers of images, modulo their count, to what the network reads.
Conditions = Callable[[NDArray[np.int64]], Condition]


@dataclass(frozen=True)
class Subjects:
    """Images, uint8 (N, C, H, W), each with its name, and its class and caption where it has them."""

    images: Tensor
    names: list[str]
    labels: list[str | None]
    captions: list[str | None]


def stored(split: str, count: int, keys: Sequence[str]) -> Subjects:
    """Return images of a split: those with some keys, or drawn ones.

    Raises:
        DarkroomError: the split has no image, or none with a key; names the nearest.
    """
    shards = ImageShards.open_parts(list(load_catalog(shards=None).parts), split)
    if not len(shards):
        raise DarkroomError(f"the split {split} has no image: name another with --split, or files with --from.")
    known = shards.keys if keys else []
    rows = [_row(key, known, split) for key in keys] if keys else drawn(len(shards), count)
    labels, captions = shards.labels, shards.captions
    return Subjects(
        torch.from_numpy(shards.__getitems__(rows)),
        shards.keys_of(rows),
        [labels[row] for row in rows],
        [captions[row] for row in rows],
    )


def _row(key: str, known: Sequence[str], split: str) -> int:
    if key in known:
        return known.index(key)
    near = difflib.get_close_matches(key, known, n=3)
    hint = f"did you mean {', '.join(near)}?" if near else "`darkroom data` lists what is stored."
    raise DarkroomError(f"--key names {key}, and the split {split} holds no such image; {hint}")


def of_files(files: Sequence[str], spec: ImageSpec) -> Subjects:
    """Return the images in some files, prepared as `ingest` prepares them.

    Raises:
        DarkroomError: a file cannot be read, or holds no image that can be prepared.
    """
    how = preparation(spec)
    images = np.stack([read_image(Path(file), how) for file in files])
    nothing: list[str | None] = [None] * len(files)
    return Subjects(torch.from_numpy(images), [Path(file).name for file in files], nothing, nothing)


def own_conditions(
    subjects: Subjects, manifest: Mapping[str, Any], labels: Sequence[str], texts: Sequence[str]
) -> tuple[Conditions, list[str]]:
    """Return the conditions that images are carried to noise under, and a word for each.

    `labels` and `texts` go before the images' own: one for all, or one an image.

    Raises:
        DarkroomError: an image has no class or caption and none is given, or there is no such class.
    """
    condition, count = manifest.get("condition", "class"), len(subjects.names)
    _require_read(condition, labels, texts)
    if condition == "class":
        classes = [str(name) for name in manifest["classes"]]
        if labels:
            numbers = _each(numbers_of(labels, classes), count, "--labels")
        else:
            own = zip(subjects.names, subjects.labels, strict=True)
            numbers = [_own_class(name, label, classes) for name, label in own]
        return of_classes(numbers), [classes[number] for number in numbers]
    if condition in TEXTS:
        captions = _each(list(texts), count, "--text") if texts else subjects.captions
        if all(caption is None for caption in captions):
            raise DarkroomError("none of the images has a caption, which the generator reads: give one with --text.")
        return of_stored(stored_texts(captions, manifest, MODEL)), [caption or "no caption" for caption in captions]
    if condition == "image":
        return of_stored({"image": _image_embeddings(subjects.images, manifest)}), subjects.names
    return (lambda numbers: None), ["no condition"] * count


def edits(manifest: Mapping[str, Any], labels: Sequence[str], texts: Sequence[str]) -> list[tuple[str, Conditions]]:
    """Return the name and the conditions of each edit: all images of another class, or of another text.

    Raises:
        DarkroomError: the generator reads none, or there is no such class.
    """
    _require_read(manifest.get("condition", "class"), labels, texts, "--to-label", "--to-text")
    if labels:
        classes = [str(name) for name in manifest["classes"]]
        return [(classes[number], of_classes([number])) for number in numbers_of(labels, classes, "--to-label")]
    if not texts:
        return []
    found = stored_texts(texts, manifest, MODEL)
    return [
        (text, of_stored({name: value[at : at + 1] for name, value in found.items()})) for at, text in enumerate(texts)
    ]


def of_classes(classes: Sequence[int]) -> Conditions:
    """Return the conditions of images of some classes."""
    return lambda numbers: torch.tensor(classes)[numbers % len(classes)]


def of_stored(rows: Mapping[str, Tensor]) -> Conditions:
    """Return the conditions of images with what CLIP says of them, or with captions, N rows under each name."""
    return lambda numbers: condition_of({name: value[numbers % len(value)] for name, value in rows.items()})


def _require_read(
    condition: str, labels: Sequence[str], texts: Sequence[str], of_class: str = "--labels", of_text: str = "--text"
) -> None:
    """Check that a generator reads what the command line gives."""
    for option, given, read in ((of_class, labels, condition == "class"), (of_text, texts, condition in TEXTS)):
        if given and not read:
            raise DarkroomError(f"{MODEL} reads no {option} (condition {condition}): omit it.")


def _own_class(name: str, label: str | None, classes: Sequence[str]) -> int:
    if label is None:
        raise DarkroomError(f"{name} has no class, which the generator reads: give one with --labels.")
    if label not in classes:
        raise DarkroomError(
            f"{name} is of the class {label}, which the generator was not trained on: give another with --labels."
        )
    return classes.index(label)


def _each(values: list[Any], count: int, option: str) -> list[Any]:
    if len(values) not in (1, count):
        raise DarkroomError(f"{option} gives {len(values)} for {count} images: give one for all, or one an image.")
    return values * count if len(values) == 1 else values


def _image_embeddings(images: Tensor, manifest: Mapping[str, Any]) -> Tensor:
    """Return CLIP's embeddings of images as `embed_clip` stores them, float16 (N, D)."""
    clip = load_clip()
    if clip.fingerprint != manifest["clip"]:
        raise ArtifactError(f"{MODEL} was trained with another CLIP than models/clip: run `dvc repro`.")
    vectors = torch.cat([clip.images(one[None]) for one in images])
    return (functional.normalize(vectors, dim=1) if manifest["normalised"] else vectors).half()
