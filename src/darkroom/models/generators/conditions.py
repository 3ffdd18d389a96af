"""Conditions of generated images: a class by their number, a CLIP embedding of an image or text, a caption, or none."""

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from darkroom.artifacts.manifest import ArtifactError
from darkroom.data.draw import drawn
from darkroom.data.embeddings import EmbeddingShards
from darkroom.data.reader import ImageShards
from darkroom.errors import DarkroomError
from darkroom.models.generators.kind_settings import READ

Numbers = NDArray[np.int64]
ClassOf = Callable[[Numbers], Numbers]  # from the numbers of images, (N,), to the numbers of their classes, (N,)

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # 2^64 / the golden ratio, odd


def balanced(classes: int) -> ClassOf:
    """Return the rule by which image i has class i modulo the number of classes."""
    return lambda numbers: numbers % classes


def by_frequency(counts: Sequence[int]) -> ClassOf:
    """Return the rule by which any consecutive images have the class frequencies of the training data.

    Image i has the class in whose part of [0, 1) the fractional part of i / φ lies, φ the golden ratio; a part's length
    is the frequency of its class. These points are evenly spread (Kuipers and Niederreiter, "Uniform distribution of
    sequences", 1974, chapter 2, section 3), so of any n images in a row a class of frequency f has n f up to a few. It
    is computed in whole numbers, the same on every machine.

    Args:
        counts: images of each class in the training data.
    """
    ends, total = np.cumsum(np.asarray(counts, dtype=np.uint64)), np.uint64(sum(counts))

    def class_of(numbers: Numbers) -> Numbers:
        points = (numbers.astype(np.uint64) * _GOLDEN) >> np.uint64(32)  # modulo 2^64: of [0, 1) in units of 2^-32
        return np.searchsorted(ends, (points * total) >> np.uint64(32), side="right")

    return class_of


def by_count(counts: Sequence[int]) -> ClassOf:
    """Return the rule by which the first images, up to the sum of the counts, have these counts, evenly mixed.

    Image j of the n of a class is placed at the fraction (j + 1/2) / n, so that consecutive images have the classes of
    the whole: standard errors come from blocks of them. The sequence repeats after the last image.
    """
    places = [(np.arange(count) + 0.5) / count for count in counts]
    classes = np.repeat(np.arange(len(counts)), counts)
    order = classes[np.lexsort((classes, np.concatenate(places)))]
    return lambda numbers: order[numbers % len(order)]


def distribution(labels: str | Mapping[str, int] | None, counts: Sequence[int] | None) -> str | Mapping[str, int]:
    """Return the requested distribution of classes: `labels`, or that of the training data if it is None.

    Published generators do not state the class counts of their training data; the classes are then balanced.
    """
    if labels is not None:
        return labels
    return "balanced" if counts is None else "frequency"


def class_rule(
    labels: str | Mapping[str, int], classes: Sequence[str], counts: Sequence[int] | None, key: str
) -> ClassOf:
    """Return the class of each image.

    Args:
        labels: `balanced`, `frequency`, or numbers of images by the name of their class.
        classes: the names of the classes.
        counts: images of each class in the training data, if known.
        key: the key of `labels` in params.yaml, for messages.

    Raises:
        DarkroomError: a class does not exist, or frequencies are requested but not known.
    """
    if labels == "balanced":
        return balanced(len(classes))
    if labels == "frequency":
        if counts is None:
            raise DarkroomError(
                f"`{key}` is frequency, but models/generator does not record the number of training images of each "
                f"class: train it again (`dvc repro train_generator`), or set `{key}` to balanced."
            )
        return by_frequency(counts)
    assert not isinstance(labels, str)  # the settings allow no other
    counts_of = [0] * len(classes)
    for name, count in labels.items():
        counts_of[class_number(name, classes, f"`{key}` names")] += count
    return by_count(counts_of)


def class_number(name: str, classes: Sequence[str], who: str) -> int:
    """Return the number of a class.

    Args:
        name: the name of the class, or its number if no class has that name.
        classes: the names of all classes.
        who: the subject of the message, the origin of the name.

    Raises:
        DarkroomError: there is no such class, and the message names the nearest; or several classes have this name.
    """
    if name in classes:
        numbers = [number for number, each in enumerate(classes) if each == name]
        if len(numbers) > 1:
            raise DarkroomError(
                f"{who} the class `{name}`, but {len(numbers)} classes have this name: use one of their numbers, "
                f"{', '.join(map(str, numbers))}."
            )
        return numbers[0]
    if name.isdecimal() and str(int(name)) == name and int(name) < len(classes):
        return int(name)
    near = difflib.get_close_matches(name, classes, n=3)
    if near:
        hint = f"did you mean {' or '.join(f'`{each}`' for each in near)}?"
    else:
        hint = f"the {len(classes)} classes are {', '.join(classes[:10])}{', …' if len(classes) > 10 else ''}."
    raise DarkroomError(f"{who} the class `{name}`, which the generator was not trained on; {hint}")


START = 49406  # the number of the token before each text; the one after it is the highest, 49407
UNKNOWN = -1  # the number of a token that is in no vocabulary


class _Rows:
    """Tensors of N images, each with N rows, or None."""

    keep: Tensor

    def mapped(self, function: Callable[[Tensor], Tensor]) -> Self:
        """Return the same with a function applied to each tensor."""
        return type(self)(*(None if each is None else function(each) for each in vars(self).values()))

    def to(self, device: torch.device) -> Self:
        """Return the same on a device."""
        return self.mapped(lambda each: each.to(device))

    def __len__(self) -> int:
        return len(self.keep)


@dataclass(frozen=True)
class Embedded(_Rows):
    """CLIP embeddings of N images or N texts.

    vector: embeddings as stored, float (N, D).
    tokens: encodings of the texts, zero after their end, float (N, L, W); None: the network reads none.
    keep: true where the condition is kept, false where the learned null replaces it, bool (N,).
    """

    vector: Tensor
    tokens: Tensor | None
    keep: Tensor

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> "Embedded":
        """Return stored `image` (N, D), or `text` (N, D) and `encoding` (N, L, W), zeros as the null.

        Images without a caption have zeros.
        """
        vector = torch.as_tensor(stored["image"] if "image" in stored else stored["text"])
        tokens = torch.as_tensor(stored["encoding"]) if "encoding" in stored else None
        return cls(vector, tokens, vector.any(dim=1))


@dataclass(frozen=True)
class Captioned(_Rows):
    """Captions of N images, which the network embeds itself.

    tokens: numbers of byte pairs (`models/clip/network.py`), zero after their end, UNKNOWN where one is hidden, int64
        (N, L).
    keep: true where the condition is kept, false where the learned null replaces it, bool (N,).
    """

    tokens: Tensor
    keep: Tensor

    @classmethod
    def of(cls, tokens: Any) -> "Captioned":
        """Return captions of tokens (N, L); zeros, of images without a caption, are the null."""
        tokens = torch.as_tensor(tokens, dtype=torch.int64)
        return cls(tokens, tokens.any(dim=1))

    def without(self, where: Tensor) -> "Captioned":
        """Return captions with the unknown token in the places of `where`, bool (N, L); start and end stay."""
        return replace(self, tokens=self.tokens.masked_fill(where & (self.tokens > 0) & (self.tokens < START), UNKNOWN))


# For N images: class numbers, int64 (N,); CLIP embeddings; captions; or nothing.
Condition = Tensor | Embedded | Captioned | None


def condition_of(data: Mapping[str, Any]) -> Condition:
    """Return the condition of a batch with `labels`, with a `caption`'s tokens, stored embeddings, or nothing."""
    if "labels" in data:
        return data["labels"]
    if "caption" in data:
        return Captioned.of(data["caption"])
    return Embedded.of(data) if "image" in data or "text" in data else None


def nulled(condition: Condition, null_label: int, where: Tensor | None = None) -> Condition:
    """Return a condition with the null instead of all images' conditions, or those of `where`, bool (N,)."""
    if condition is None:
        return None
    if isinstance(condition, Embedded | Captioned):
        return replace(condition, keep=torch.zeros_like(condition.keep) if where is None else condition.keep & ~where)
    null = torch.full_like(condition, null_label)
    return null if where is None else torch.where(where, null, condition)


def with_null(condition: Condition, null_label: int) -> Condition:
    """Return a condition of 2 N images, the second half of them with the null."""
    if condition is None:
        return None
    if isinstance(condition, Embedded | Captioned):
        keep = torch.cat([condition.keep, torch.zeros_like(condition.keep)])
        return replace(condition.mapped(lambda each: torch.cat([each, each])), keep=keep)
    return torch.cat([condition, torch.full_like(condition, null_label)])


def rows_of(condition: Condition, rows: Tensor) -> Condition:
    """Return the condition of some images, by their rows, int64 (N,)."""
    if isinstance(condition, Embedded | Captioned):
        return condition.mapped(lambda each: each[rows])
    return None if condition is None else condition[rows]


# By the numbers of generated images


@dataclass(frozen=True)
class ConditionSource:
    """The conditions of generated images, each by its number.

    condition: returns the network's input for numbers (N,), on the CPU.
    label: returns class numbers; None: the images have no class.
    caption: returns texts; None: no texts.
    """

    condition: Callable[[Numbers], Condition]
    label: ClassOf | None = None
    caption: Callable[[Numbers], list[str]] | None = None


NOTHING = ConditionSource(lambda numbers: None)


def asked_classes(class_of: ClassOf) -> ConditionSource:
    """Return the conditions of a class-conditional generator."""
    return ConditionSource(lambda numbers: torch.from_numpy(class_of(numbers)), class_of)


def asked_stored(
    shards: EmbeddingShards | ImageShards,
    condition: str,
    classes: Sequence[str],
    read: Callable[[NDArray[np.int64]], Condition] | None = None,
) -> ConditionSource:
    """Return the conditions of a generator of images or texts: image i has the stored row drawn i-th, in turn.

    Args:
        shards: the stored embeddings of a split, or its images; without captions they are left out if texts are
            read.
        condition: `image`, `text`, `tokens` or `caption`.
        classes: the names of the classes; images have classes if all rows have one of these.
        read: returns the network's input for rows; None: the stored embeddings.

    Raises:
        DarkroomError: no image has the input that is read.
    """
    captions, labels = shards.captions, shards.labels
    rows = np.array([row for row, each in enumerate(captions) if condition == "image" or each is not None], np.int64)
    if not len(rows):
        raise DarkroomError(
            f"none of the {len(captions):,} images has a caption, but the generator's `model.condition` is "
            f"{condition}: add captions to the source (`parts` and the source's section in params.yaml)."
        )
    rows = rows[drawn(len(rows))]
    numbers = {name: number for number, name in enumerate(classes)}
    known = np.array([numbers.get(labels[row] or "", -1) for row in rows], np.int64)

    def row_of(images: Numbers) -> NDArray[np.int64]:
        return rows[images % len(rows)]

    def stored(rows: NDArray[np.int64]) -> Condition:
        assert isinstance(shards, EmbeddingShards)  # for images the caller passes `read`
        return Embedded.of(shards.__getitems__(rows, READ[condition]))

    return ConditionSource(
        lambda images: (read or stored)(row_of(images)),
        (lambda images: known[images % len(rows)]) if (known >= 0).all() else None,
        lambda images: [captions[row] or shards.keys_of([row])[0] for row in row_of(images).tolist()],
    )


def open_stored(manifest: Mapping[str, Any], split: str, root: Path) -> EmbeddingShards:
    """Return the stored embeddings of a split that a generator reads.

    Args:
        manifest: of the generator.
        split: "train", "val" or "test".
        root: the folder of the embeddings.

    Raises:
        ArtifactError: the generator was trained with another CLIP, or another normalisation.
    """
    embeddings = EmbeddingShards.open_parts(manifest["parts"], split, root)
    if (embeddings.clip, embeddings.normalised) != (manifest["clip"], manifest["normalised"]):
        raise ArtifactError(
            f"models/generator was trained on other embeddings than {root}: run `dvc repro train_generator`."
        )
    return embeddings
