"""Find images that belong together: frames of an animation, a burst, several sizes of one icon.

Names come first: a rule such as "the first word of the file name" is accepted where the images that it joins look more
alike than random pairs. Then come near copies, by the colours and the shape of what is visible. Perceptual hashes fail
on such images: on 5,780 sprites, the nearest neighbour by pHash is of the same unit in 0.49 of the cases, by these
colours in 0.93.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from darkroom.data.splits import SPLITS, split_of

_SIDE, _BINS = 16, 6
THUMB = 2 * 4 * _SIDE**2  # numbers of a thumbnail and its mirror image
HISTOGRAM = 2 * _BINS**3  # numbers of a histogram of the colours, and of one with the brightness normalised
SIZE = THUMB + HISTOGRAM
_PARTS = (slice(THUMB // 2), slice(THUMB, THUMB + HISTOGRAM // 2), slice(THUMB + HISTOGRAM // 2, SIZE))
_NEIGHBOURS, _COMPONENTS, _CHUNK = 20, 64, 2048
_RANDOM_PAIRS = 2000
TWIN = 0.0025  # images nearer than this belong together, whatever their names say
THRESHOLDS = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.05)
LARGEST_BY_NAME, LARGEST_BY_LOOK = 0.1, 0.15  # of the images, in one group
_LEAST_GROUPS, _LEAST_JOINED, _LEAST_AUC, _LEAST_CLOSED = 20, 0.05, 0.8, 0.6


def descriptor(image: Image.Image) -> NDArray[np.float32]:
    """Describe the visible part of an image by its shape and colours.

    Pixels are multiplied by alpha and cropped to the box of alpha, so colours of transparent pixels do not matter.

    Args:
        image: of any size and of mode L, RGB or RGBA.

    Returns:
        float32 (SIZE,): a 16 x 16 thumbnail on mid grey with its alpha and the mirror image of both, of norm 1; then
        the square roots of a colour histogram (6 x 6 x 6, trilinear, weighted by alpha), and of one of the colours
        divided by the brightest value. Zeros for an image without a visible pixel.
    """
    rgba = image.convert("RGBA")
    if (box := rgba.getchannel("A").getbbox()) is None:
        return np.zeros(SIZE, np.float32)
    pixels = np.asarray(rgba.crop(box).convert("RGBa").resize((_SIDE, _SIDE), Image.Resampling.BOX), np.float32) / 255
    thumb = np.concatenate([pixels[..., :3] - 0.5 * pixels[..., 3:], pixels[..., 3:] - 1], -1)  # mid grey and opaque: 0
    thumb /= max(float(np.linalg.norm(thumb)), 1e-6)
    colours = np.asarray(rgba.crop(box).resize((4 * _SIDE, 4 * _SIDE), Image.Resampling.NEAREST), np.float32) / 255
    weights, colours = colours[..., 3].reshape(-1), colours[..., :3].reshape(-1, 3)
    brightest = float((colours * weights[:, None]).max())
    both = (_histogram(colours / max(scale, 1e-6), weights) for scale in (1.0, brightest))
    return np.concatenate([thumb.ravel(), thumb[:, ::-1].ravel(), *both]).astype(np.float32)


def _histogram(colours: NDArray[np.float32], weights: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the square roots of a trilinear histogram of colours (N, 3) in [0, 1]; the squares sum to 1."""
    places = np.clip(colours, 0, 1) * (_BINS - 1)
    low = np.minimum(places.astype(np.int64), _BINS - 2)
    rest = places - low
    counts = np.zeros(_BINS**3)
    for corner in np.ndindex(2, 2, 2):
        share = np.prod(np.where(corner, rest, 1 - rest), axis=1) * weights
        counts += np.bincount((low + corner) @ (_BINS**2, _BINS, 1), share, _BINS**3)
    return np.sqrt(counts / max(counts.sum(), 1e-12)).astype(np.float32)


def distance(some: NDArray[np.float32], others: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the distance of descriptors, (..., SIZE) each: d = shape^(1/3) colour^(2/3).

    shape is 1 - the cosine of the thumbnails, colour 1 - the Bhattacharyya coefficient of the histograms, each the
    smaller of two: of the image or its mirror image, of the colours or those with the brightness normalised.
    """
    half, third = THUMB // 2, THUMB + HISTOGRAM // 2

    def dot(a: slice, b: slice) -> NDArray[np.float32]:
        return np.einsum("...i,...i->...", some[..., a], others[..., b])

    shape = 1 - np.maximum(dot(slice(half), slice(half)), dot(slice(half), slice(half, THUMB)))
    colour = 1 - np.maximum(dot(slice(THUMB, third), slice(THUMB, third)), dot(slice(third, None), slice(third, None)))
    return np.cbrt(np.clip(shape, 0, None)) * np.cbrt(np.clip(colour, 0, None)) ** 2


def neighbours(
    looks: NDArray[np.float32], queries: NDArray[np.float32] | None = None
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Find near descriptors for each of `queries`, or for each of `looks` itself, other than itself.

    Candidates are the 20 nearest by the principal components of the thumbnails and of each histogram; then `distance`
    is computed.

    Returns:
        Row numbers in `looks`, int64 (N, 60 or fewer), and their distances, float32; a row may occur twice.
    """
    own, queries = queries is None, looks if queries is None else queries
    near = np.concatenate([_nearest(looks[:, part], queries[:, part], _NEIGHBOURS + own) for part in _PARTS], axis=1)
    chunks = np.array_split(np.arange(len(near)), len(near) // 256 + 1)
    far = np.concatenate([distance(queries[rows, None], looks[near[rows]]) for rows in chunks])
    if own:
        far[near == np.arange(len(near))[:, None]] = np.inf
    return near, far


def _nearest(known: NDArray[np.float32], sought: NDArray[np.float32], count: int) -> NDArray[np.int64]:
    """Return the nearest rows of `known` for each row of `sought`, by 64 principal components."""
    centred, count = known - known.mean(0), min(count, len(known))
    base = np.linalg.eigh(centred.T @ centred)[1][:, -_COMPONENTS:].astype(np.float32)
    known, sought = known @ base, sought @ base
    squares = (known**2).sum(1)
    return np.concatenate(
        [
            np.argpartition(squares - 2 * sought[first : first + _CHUNK] @ known.T, count - 1, axis=1)[:, :count]
            for first in range(0, len(sought), _CHUNK)
        ]
    )


def components(pairs: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """Return the number of the connected component of each of `count` images, in the order of their first images."""
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import connected_components

    graph = coo_matrix((np.ones(len(pairs), bool), (pairs[:, 0], pairs[:, 1])), (count, count))
    return _in_order(connected_components(graph, directed=False)[1])


def _in_order(groups: Sequence[object] | NDArray[np.int64]) -> NDArray[np.int64]:
    """Number groups in the order of their first members."""
    numbers: dict[object, int] = {}
    return np.array([numbers.setdefault(group, len(numbers)) for group in np.asarray(groups).tolist()], np.int64)


@dataclass(frozen=True)
class Groups:
    """Images by group.

    numbers: the group of each image, int64 (N,), in the order of their first images.
    rule: what joined them, for people.
    """

    numbers: NDArray[np.int64]
    rule: str

    @property
    def sizes(self) -> NDArray[np.int64]:
        """The number of images of each group."""
        return np.bincount(self.numbers)

    @property
    def effective(self) -> float:
        """The number of groups of equal size that would be as diverse: N^2 / sum n^2."""
        return float(len(self.numbers) ** 2 / (self.sizes.astype(float) ** 2).sum())


_WORD = re.compile(r"[^\W\d_]+")  # letters


def _words(name: str, count: int) -> str:
    """Return the first words of a name: runs of letters, also where case changes; without any, all of the name."""
    words = _WORD.findall(re.sub(r"(?<=[a-z])(?=[A-Z])", "-", name))
    return "-".join(words[:count]).lower() or name


def rules(paths: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield rules that may name groups, from fine to coarse: the rule, and the name of the group of each path."""
    files = [PurePosixPath(path) for path in paths]
    tops = [file.parts[0] if len(file.parts) > 1 else "" for file in files]
    yield "the file name without its folder", [file.stem for file in files]
    for count in (4, 3, 2, 1):
        first = "the first word" if count == 1 else f"the first {count} words"
        yield (
            f"the top folder and {first} of the file name",
            [f"{top}/{_words(file.stem, count)}" for top, file in zip(tops, files, strict=True)],
        )
        yield f"{first} of the file name", [_words(file.stem, count) for file in files]
    yield "the folder", [str(file.parent) for file in files]


def by_name(paths: Sequence[str], looks: NDArray[np.float32], labels: Sequence[str | None]) -> Groups | None:
    """Group images by their names; None where no rule holds.

    A rule holds where it makes 20 groups or more, none with more than a tenth of the images, at least one in twenty
    images is joined, and the pairs that it joins and a finer rule that holds does not are nearer than random pairs:
    the area under the ROC curve of the distance is at least 0.8. Of these the coarsest is taken. The folder is no
    group where it is the class.

    Args:
        paths: the path of each image below the folder that is read, with `/`.
        looks: the descriptors, (N, SIZE).
        labels: the class of each image.
    """
    draw = np.random.default_rng(0)
    apart = draw.integers(0, len(paths), (_RANDOM_PAIRS, 2))
    apart = apart[apart[:, 0] != apart[:, 1]]
    far = distance(looks[apart[:, 0]], looks[apart[:, 1]])
    best, finer = None, np.arange(len(paths))
    for rule, names in rules(paths):
        numbers = _in_order(names)
        sizes = np.bincount(numbers)
        joined = sizes[sizes > 1].sum() / len(paths)
        is_class = len(set(zip(names, labels, strict=True))) == len(set(labels)) == len(sizes)
        if len(sizes) < _LEAST_GROUPS or sizes.max() > LARGEST_BY_NAME * len(paths) or joined < _LEAST_JOINED:
            continue
        pairs = _newly_joined(numbers, finer, draw)
        near = distance(looks[pairs[:, 0]], looks[pairs[:, 1]])
        if is_class or (len(pairs) and _auc(near, far) < _LEAST_AUC):
            continue
        best, finer = Groups(numbers, rule), numbers
    return best


def _newly_joined(numbers: NDArray[np.int64], finer: NDArray[np.int64], draw: np.random.Generator) -> NDArray[np.int64]:
    """Draw pairs of images of one group that are of different groups of a finer rule."""
    order = np.argsort(numbers, kind="stable")
    starts = np.searchsorted(numbers[order], np.arange(numbers.max() + 2))
    one = draw.integers(0, len(numbers), 4 * _RANDOM_PAIRS)
    low, high = starts[numbers[one]], starts[numbers[one] + 1]
    pairs = np.stack([one, order[draw.integers(low, high)]], axis=1)
    return pairs[finer[pairs[:, 0]] != finer[pairs[:, 1]]][:_RANDOM_PAIRS]


def _auc(near: NDArray[np.float32], far: NDArray[np.float32]) -> float:
    """Return the probability that a distance of `near` is below one of `far`, ties counted half."""
    far = np.sort(far)
    below = np.searchsorted(far, near, "left") + np.searchsorted(far, near, "right")
    return float(1 - below.mean() / (2 * len(far)))


def by_look(near: NDArray[np.int64], far: NDArray[np.float32]) -> Groups:
    """Group similar images, from `neighbours`: connected below the largest threshold at which groups stay sound.

    Sound: no group has more than 15 % of the images, and at least 60 % of the paths of two pairs are closed by a third
    pair. Chains of images that only resemble their neighbours are not closed.
    """
    count, best = len(near), Groups(np.arange(len(near)), "no similar images")
    for threshold in THRESHOLDS:
        pairs = _pairs(near, far, threshold)
        numbers = components(pairs, count)
        if np.bincount(numbers).max() > LARGEST_BY_LOOK * count or _closed(pairs, count) < _LEAST_CLOSED:
            break
        best = Groups(numbers, f"similar images (distance below {threshold})")
    return best


def _pairs(near: NDArray[np.int64], far: NDArray[np.float32], threshold: float) -> NDArray[np.int64]:
    one, place = np.nonzero(far <= threshold)
    return np.unique(np.sort(np.stack([one, near[one, place]], axis=1), axis=1), axis=0)


def _closed(pairs: NDArray[np.int64], count: int) -> float:
    """Return the fraction of paths of two pairs whose ends are a pair too; 1 without such paths."""
    from scipy.sparse import coo_matrix

    graph = coo_matrix((np.ones(len(pairs)), (pairs[:, 0], pairs[:, 1])), (count, count)).tocsr()
    graph = graph + graph.T
    degree = np.asarray(graph.sum(1)).ravel()
    paths = (degree * (degree - 1)).sum()
    return float((graph @ graph).multiply(graph).sum() / paths) if paths else 1.0


def grouped(paths: Sequence[str] | None, looks: NDArray[np.float32], labels: Sequence[str | None]) -> Groups:
    """Group images by name and by near copies; where no rule on names holds, by similar images.

    `paths` None: the images have no names.
    """
    near, far = neighbours(looks)
    named = None if paths is None else by_name(paths, looks, labels)
    if named is None:
        return by_look(near, far)
    chain = np.argsort(named.numbers, kind="stable")
    same = np.stack([chain[:-1], chain[1:]], axis=1)[np.diff(named.numbers[chain]) == 0]
    numbers = components(np.concatenate([same, _pairs(near, far, TWIN)]), len(looks))
    return Groups(numbers, f"{named.rule}, and near copies")


_PINNED = 0.05  # of the images: a larger group goes to the train split as a whole
_SALTS, _TOLERANCE = 64, 0.01
_CHANCE = 0.05  # of the held-out images are near a training image by chance


def split_by_group(
    groups: Groups, keys: Sequence[str], labels: Sequence[str | None], fractions: Mapping[str, float], seed: int
) -> tuple[list[str], int]:
    """Return the split of each image, such that no group lies in two splits, and the salt that was needed.

    A group goes where its first image would go (`split_of`); groups above 5 % of the images go to the train split. The
    first of 64 salts is taken that gives each split its fraction within one point, and leaves no class without training
    images; else the one that comes nearest.
    """
    numbers, sizes = groups.numbers, groups.sizes
    firsts = np.unique(numbers, return_index=True)[1].tolist()
    pinned = sizes > _PINNED * len(keys)
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


def leakage(
    train: tuple[NDArray[np.float32], NDArray[np.int64], Sequence[str | None]],
    held_out: tuple[NDArray[np.float32], NDArray[np.int64], Sequence[str | None]],
) -> dict[str, float]:
    """Measure how near held-out images are to training images.

    `train` and `held_out` are descriptors, group numbers and labels of the images; a group has one number in both.

    Returns:
        tau: the 5 % quantile of the distance from a training image to the nearest one of another group; groups above
            5 % of the images are left out.
        near: the fraction of held-out images nearer than tau to a training image: 0.05 by chance.
        nearest_label: the fraction of held-out images whose nearest training image has their label.
        nearest_label_other_group: the same without training images of their own group. Both only with labels.
    """
    looks, groups, labels = train
    near, far = neighbours(looks)
    far[groups[near] == groups[:, None]] = np.inf
    small = np.bincount(groups)[groups] <= _PINNED * len(groups)
    apart = far.min(1)[small] if small.any() else far.min(1)
    tau = float(np.quantile(apart, _CHANCE, method="lower"))
    sought, own, wanted = held_out
    near, far = neighbours(looks, sought)
    measured = {"tau": tau, "near": float((far.min(1) < tau).mean())}
    if None in labels or len(set(labels)) < 2:
        return measured
    names, own_names = np.array(labels), np.array(wanted)

    def right(distances: NDArray[np.float32]) -> float:
        return float((names[near[np.arange(len(near)), distances.argmin(1)]] == own_names).mean())

    other = np.where(groups[near] == own[:, None], np.inf, far).astype(np.float32)
    return measured | {"nearest_label": right(far), "nearest_label_other_group": right(other)}
