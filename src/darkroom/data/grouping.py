"""Split a part by groups of images, and measure how near held-out images are to training images."""

import pickle
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from tempfile import TemporaryFile
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from darkroom.data.catalog import CHANCE
from darkroom.data.draw import drawn
from darkroom.data.groups import Groups, by_look, by_name, descriptor, grouped, in_order, neighbours, with_copies
from darkroom.data.images import to_pil
from darkroom.data.layout import SHARDS
from darkroom.data.pipeline import Outcome
from darkroom.data.reader import ImageShards
from darkroom.data.splits import SPLITS, split_of
from darkroom.errors import DarkroomError

LOOKS = ("name", "similar", "auto")  # values of `ingest.group` that need descriptors
_PINNED = 0.05  # of the images: a larger group goes to the train split as a whole
_SALTS, _TOLERANCE = 64, 0.01


def assigned(
    outcomes: Iterable[Outcome], part: str, rule: str, fractions: Mapping[str, float], seed: int, folder: Path
) -> tuple[Iterator[tuple[Outcome, str, str | None]], dict[str, Any]]:
    """Return the outcomes of a part, each with its split and its group, and the entry `groups` of the part's manifest.

    Groups are known only after the last outcome, so outcomes wait in a temporary file in `folder`, and their
    descriptors, 12 kB each, in memory. With the `rule` (`ingest.group`) `key` there is no group, and with `caption` a
    group is known from its first image, in all parts: nothing waits.

    Raises:
        DarkroomError: the rule makes no groups; the message says what to set instead.
    """
    if rule == "key":
        return ((each, split_of(each.key, fractions, seed), None) for each in outcomes), {}
    if rule == "caption":
        captioned = ((each, each.caption or each.key) for each in outcomes)
        return ((each, split_of(group, fractions, seed), group) for each, group in captioned), {}
    file, rows = TemporaryFile(dir=folder), []  # noqa: SIM115, closed after the last outcome
    for outcome in outcomes:
        pickle.dump(replace(outcome, look=None), file)
        rows.append(replace(outcome, data=None))
    if not rows:
        return iter(()), {}
    labels = [row.label for row in rows]
    groups = _groups(rule, part, rows, labels)
    splits, salt = split_by_group(groups, [row.key for row in rows], labels, fractions, seed)
    file.seek(0)

    def again() -> Iterator[tuple[Outcome, str, str | None]]:
        with file:
            for split, number in zip(splits, groups.numbers.tolist(), strict=True):
                yield pickle.load(file), split, f"{part}/{number}"

    largest, effective = int(groups.sizes.max()), round(groups.effective, 1)
    facts = {"groups": len(groups.sizes), "largest": largest, "effective": effective, "salt": salt}
    return again(), {"groups": {"rule": groups.rule, **facts}}


def _groups(rule: str, part: str, rows: Sequence[Outcome], labels: Sequence[str | None]) -> Groups:
    """Group the outcomes of a part by `ingest.group`."""
    column = rule.partition(":")[2]
    values = [row.group if column else row.name for row in rows]
    known = [value for value in values if value is not None]
    if rule in LOOKS:
        looks = np.stack([row.look for row in rows if row.look is not None])
        if rule == "auto":
            return grouped(values, looks, labels)
        near, far = neighbours(looks)
        if rule == "similar":
            return by_look(near, far)
    if len(known) < len(rows) and not (column and known):
        lack = f"the column `{column}`" if column else "a file name"
        raise DarkroomError(
            f"`ingest.group` is {rule}, but images of the part `{part}` lack {lack}: set it to similar or key."
        )
    if column:  # an image without a value is a group of its own
        return Groups(in_order([value or place for place, value in enumerate(values)]), f"the column {column}")
    if rule == "folder":
        return Groups(in_order([str(PurePosixPath(path).parent) for path in known]), "the folder")
    named, tried = by_name(known, looks, labels)
    if named is None:
        raise DarkroomError(
            f"`ingest.group` is name, but no rule on the file names of the part `{part}` holds: {'; '.join(tried)}. "
            "Set it to similar, folder, column:NAME or key."
        )
    return with_copies(named, near, far)


def split_by_group(
    groups: Groups, keys: Sequence[str], labels: Sequence[str | None], fractions: Mapping[str, float], seed: int
) -> tuple[list[str], int]:
    """Return the split of each image, such that no group lies in two splits, and the salt that was needed.

    A group goes where its first image would go (`split_of`); groups above 5 % of the images go to the train split. The
    first of 64 salts is taken that gives each split its fraction within one point, and leaves no class without training
    images; else the one that comes nearest.

    Raises:
        DarkroomError: all groups are that large, so that no image is held out.
    """
    numbers, sizes = groups.numbers, groups.sizes
    firsts = np.unique(numbers, return_index=True)[1].tolist()
    pinned = (sizes > _PINNED * len(keys)) & (sizes > 1)
    if pinned.all() and fractions["train"] < 1:
        raise DarkroomError(
            f"`ingest.group`, by {groups.rule}, makes {len(sizes)} groups, each with more than {_PINNED:.0%} of the "
            "images: they all train, and none is held out. Choose another rule, such as name or similar."
        )
    best: tuple[float, list[str], int] | None = None
    for salt in range(_SALTS):
        prefix = f"{salt}/" if salt else ""
        of_group = [
            "train" if is_pinned else split_of(f"{prefix}{keys[first]}", fractions, seed)
            for first, is_pinned in zip(firsts, pinned.tolist(), strict=True)
        ]
        splits = [of_group[number] for number in numbers.tolist()]
        counts = Counter(splits)
        off = max(abs(counts[split] / len(keys) - fractions[split]) for split in SPLITS)
        trained = {label for label, split in zip(labels, splits, strict=True) if split == "train"}
        off += len(set(labels) - trained)
        off += sum(fractions[split] > 0 and not counts[split] for split in SPLITS)
        if best is None or off < best[0]:
            best = (off, splits, salt)
        if off <= _TOLERANCE:
            break
    assert best is not None
    return best[1], best[2]


class Looks(NamedTuple):
    """Descriptors, group numbers and labels of some images; a group has the same number in two of these."""

    looks: NDArray[np.float32]
    groups: NDArray[np.int64]
    labels: Sequence[str | None]


def _tau(train: Looks) -> float:
    """Return the 5 % quantile of the distance from a training image to the nearest one of another group."""
    near, far = neighbours(train.looks)
    far[train.groups[near] == train.groups[:, None]] = np.inf
    small = np.bincount(train.groups)[train.groups] <= _PINNED * len(near)
    apart = far.min(1)[small] if small.any() else far.min(1)
    apart = apart[np.isfinite(apart)]  # all near ones of an image may be of its group
    return float(np.quantile(apart, CHANCE, method="lower")) if len(apart) else 0.0


def leakage(train: Looks, held_out: Looks) -> dict[str, float]:
    """Measure how near held-out images are to training images.

    Returns:
        tau: the 5 % quantile of the distance from a training image to the nearest one of another group; groups above
            5 % of the images are left out.
        near: the fraction of held-out images no farther than tau from a training image: 0.05 by chance.
        groups: the number of groups of equal size that would be as diverse as the held-out images.
        nearest_label: the fraction of held-out images whose nearest training image has their label.
        nearest_label_other_group: the same without training images of their own group. Both only with labels.
    """
    tau = _tau(train)
    near, far = neighbours(train.looks, held_out.looks)
    measured = {"tau": float(f"{tau:.3g}"), "near": round(float((far.min(1) <= tau).mean()), 4)}
    measured["groups"] = round(Groups(in_order(held_out.groups.tolist()), "").effective, 1)
    if None in train.labels or len(set(train.labels)) < 2:
        return measured
    names, own_names = np.array(train.labels), np.array(held_out.labels)

    def right(distances: NDArray[np.float64]) -> float:
        nearest = near[np.arange(len(near)), distances.argmin(1)]
        return round(float((names[nearest] == own_names).mean()), 4)

    other = np.where(train.groups[near] == held_out.groups[:, None], np.inf, far)
    return measured | {"nearest_label": right(far), "nearest_label_other_group": right(other)}


_TRAIN, _HELD_OUT, _LEAST = 20_000, 2_000, 50  # images that are compared, and that are needed on each side
_COLUMNS = "key", "label", "group"


def measure_leakage(parts: Sequence[str], root: Path = SHARDS) -> dict[str, Any] | None:
    """Measure the `leakage` of the test split of some parts, or the val split where that has too few images.

    At most 20,000 training and 2,000 held-out images are compared, drawn at random. Groups are those of the parts;
    where one has none, they are found by the keys and looks of these images.

    Returns:
        What `leakage` returns; split; train and images: the numbers of images compared; and setting: the value of
        `ingest.group` that would split groups that were found, null where the parts are split by group. None: a split
        has less than 50 images, or a part is remote.
    """
    shards = {split: ImageShards.open_parts(parts, split, root) for split in SPLITS}
    split = next((name for name in ("test", "val") if len(shards[name]) >= _LEAST), None)
    if split is None or len(shards["train"]) < _LEAST or any(each.remote for each in shards.values()):
        return None
    rows = [drawn(len(shards[name]), most) for name, most in (("train", _TRAIN), (split, _HELD_OUT))]
    train, held_out, setting = _looks([shards["train"], shards[split]], rows)
    counts = {"split": split, "train": len(rows[0]), "images": len(rows[1])}
    return {**counts, **leakage(train, held_out), "setting": setting}


def near_twins(train: ImageShards, held_out: ImageShards) -> list[int]:
    """Return the rows of held-out images that are no farther than tau from a training image, see `leakage`.

    All images are compared, which takes 12 kB of memory for each.

    Raises:
        DarkroomError: there are fewer than 50 images on a side, or no others than twins, or a part is remote.
    """
    if train.remote or held_out.remote or min(len(train), len(held_out)) < _LEAST:
        raise DarkroomError(
            f"`reference_stats.twins` is quarantine, which needs local parts, {_LEAST} training images and {_LEAST} "
            f"held-out images, but there are {len(train):,} and {len(held_out):,}: add images, or set it to keep."
        )
    known, unseen, _ = _looks([train, held_out], [range(len(train)), range(len(held_out))])
    rows = np.flatnonzero(neighbours(known.looks, unseen.looks)[1].min(1) <= _tau(known)).tolist()
    if len(held_out) - len(rows) < 2:  # which have no covariance
        raise DarkroomError(
            f"`reference_stats.twins` is quarantine, but {len(rows):,} of {len(held_out):,} held-out images have a "
            "near twin in training, and 2 others are needed: add other images, or set it to keep."
        )
    return rows


def _looks(shards: Sequence[ImageShards], rows: Sequence[Sequence[int]]) -> tuple[Looks, Looks, str | None]:
    """Return the descriptors of rows of training and of held-out images, and `setting` of `measure_leakage`."""
    sides = list(zip(shards, rows, strict=True))
    keys, labels, names = ([value for of, some in sides for value in of.some(column, some)] for column in _COLUMNS)
    looks = np.stack([descriptor(to_pil(of[row])) for of, some in sides for row in some])
    groups = grouped(keys, looks, labels) if None in names else Groups(in_order(names), "")
    train, held_out = (
        Looks(looks[some], groups.numbers[some], labels[some])
        for some in (slice(len(rows[0])), slice(len(rows[0]), None))
    )
    return train, held_out, groups.setting if None in names else None
