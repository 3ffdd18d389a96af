"""Find images that belong together: frames of an animation, a burst, several sizes of one icon.

Names come first: a rule such as "the first word of the file name" is accepted where the images that it joins look more
alike than random pairs. Then come near copies, by the colours and the shape of what is visible. Perceptual hashes fail
on such images: on 5,780 sprites, the nearest neighbour by pHash is of the same unit in 0.49 of the cases, by these
colours in 0.93.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from darkroom.data.preparing import as_channels, eight_bits

_SIDE, _BINS, _SAMPLES, _LARGE = 16, 6, 64, 512
THUMB = 4 * _SIDE**2  # numbers of a thumbnail
HISTOGRAM = 2 * _BINS**3  # numbers of a histogram of the colours, and of one with the brightness normalised
SIZE = THUMB + HISTOGRAM
_HALF = THUMB + HISTOGRAM // 2
_PARTS = (slice(THUMB), slice(THUMB, _HALF), slice(_HALF, SIZE))
_NEIGHBOURS, _COMPONENTS, _FEW, _CHUNK = 20, 64, 512, 2048
_RANDOM_PAIRS = 2000
TWIN = 0.0025  # images nearer than this belong together, whatever their names say
THRESHOLDS = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.05)
LARGEST_BY_NAME, LARGEST_BY_LOOK = 0.1, 0.15  # of the images, in one group
_LEAST_GROUPS, _LEAST_JOINED, _LEAST_AUC, _LEAST_CLOSED = 20, 0.05, 0.8, 0.6


def descriptor(image: Image.Image) -> NDArray[np.float32]:
    """Describe the visible part of an image by its shape and colours.

    Pixels are multiplied by alpha and cropped to the box of alpha, so colours of transparent pixels do not matter.

    Args:
        image: of any size and mode that `eight_bits` accepts.

    Returns:
        float32 (SIZE,): a 16 x 16 thumbnail on mid grey with its alpha, of norm 1; then the square roots of a colour
        histogram (6 x 6 x 6, trilinear, weighted by alpha), and of one of the colours divided by the brightest value.
        Zeros for an image without a visible pixel.
    """
    image = eight_bits(image)
    if max(image.size) > _LARGE:
        image = image.reduce(2 * max(image.size) // _LARGE)
    rgba = as_channels(image, None, "RGBA")
    if (box := rgba.getchannel("A").getbbox()) is None:
        return np.zeros(SIZE, np.float32)
    rgba = rgba.crop(box)
    pixels = np.asarray(rgba.convert("RGBa").resize((_SIDE, _SIDE), Image.Resampling.BOX), np.float32) / 255
    thumb = np.concatenate([pixels[..., :3] - 0.5 * pixels[..., 3:], pixels[..., 3:] - 1], -1)  # mid grey and opaque: 0
    thumb /= max(float(np.linalg.norm(thumb)), 1e-6)
    colours = np.asarray(rgba)[_spaced(rgba.height)][:, _spaced(rgba.width)].reshape(-1, 4)
    colours = colours[colours[:, 3] > 0].astype(np.float32) / np.float32(255)
    brightest = max(float((colours[:, :3] * colours[:, 3:]).max()), 1e-6)
    both = (_histogram(colours[:, :3] / np.float32(scale), colours[:, 3:]) for scale in (1.0, brightest))
    return np.concatenate([thumb.ravel(), *both])


def _spaced(length: int) -> NDArray[np.int64]:
    """Return at most 64 positions in a length, the same from both ends."""
    half = (2 * np.arange(_SAMPLES // 2) + 1) * length // (2 * _SAMPLES)
    return np.arange(length) if length <= _SAMPLES else np.concatenate([half, length - 1 - half[::-1]])


def _histogram(colours: NDArray[np.float32], weights: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the square roots of a trilinear histogram of colours (N, 3) of 0 to 1; the squares sum to 1."""
    places = np.minimum(colours, 1).T[:, None] * (_BINS - 1) - np.arange(_BINS, dtype=np.float32)[:, None]
    red, green, blue = np.maximum(1 - np.abs(places), 0)  # (6, N)
    counts = (red[:, None] * green).reshape(_BINS**2, -1) @ (blue.T * weights)
    return np.sqrt(counts.ravel() / counts.sum())


def distance(some: NDArray[np.float32], others: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return the distance of descriptors, (..., SIZE) each: d = shape^(1/3) colour^(2/3).

    shape is 1 - the cosine of the thumbnails, colour 1 - the Bhattacharyya coefficient of the histograms, each the
    smaller of two: of the image or its mirror image, of the colours or those with the brightness normalised.
    """
    thumbs = some[..., :THUMB]
    mirrored = thumbs.reshape(*thumbs.shape[:-1], _SIDE, _SIDE, 4)[..., ::-1, :].reshape(thumbs.shape)
    pairs = zip((thumbs, mirrored, some[..., _PARTS[1]], some[..., _PARTS[2]]), (_PARTS[0], *_PARTS), strict=True)
    # In float64, so that other processors find the same neighbours: splits and the catalog follow from these numbers.
    dots = [np.einsum("...i,...i->...", one, others[..., part], dtype=np.float64) for one, part in pairs]
    shape, colour = (np.clip(1 - np.maximum(*both), 0, None) for both in (dots[:2], dots[2:]))
    result: NDArray[np.float64] = np.cbrt(shape) * np.cbrt(colour) ** 2
    return result


def neighbours(
    looks: NDArray[np.float32], queries: NDArray[np.float32] | None = None
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Find near descriptors for each of `queries`, or for each of `looks` itself, other than itself.

    Candidates are the 20 nearest by the thumbnails and by each histogram, see `_nearest`; then `distance` is computed.

    Returns:
        Row numbers in `looks`, int64 (N, 60 or fewer), and their distances, float64; a row may occur twice.
    """
    own, queries = queries is None, looks if queries is None else queries
    near = np.concatenate([_nearest(looks[:, part], queries[:, part], _NEIGHBOURS + own) for part in _PARTS], axis=1)
    chunks = np.array_split(np.arange(len(near)), len(near) // 256 + 1)
    far = np.concatenate([distance(queries[rows, None], looks[near[rows]]) for rows in chunks])
    if own:
        far[near == np.arange(len(near))[:, None]] = np.inf
    return near, far


def _nearest(known: NDArray[np.float32], sought: NDArray[np.float32], count: int) -> NDArray[np.int64]:
    """Return the nearest rows of `known` for each of `sought`, by 64 principal components if it has over 512 rows."""
    count = min(count, len(known))
    if len(known) > _FEW:
        centred = known - known.mean(0)
        base = np.linalg.eigh(centred.T @ centred)[1][:, -_COMPONENTS:].astype(np.float32)
        known, sought = known @ base, sought @ base
    squares = (known**2).sum(1)
    scores = (squares - 2 * sought[first : first + _CHUNK] @ known.T for first in range(0, len(sought), _CHUNK))
    return np.concatenate([np.argpartition(score, count - 1, axis=1)[:, :count] for score in scores])


def components(pairs: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """Return the number of the connected component of each of `count` images, in the order of their first images."""
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import connected_components

    graph = coo_matrix((np.ones(len(pairs), bool), (pairs[:, 0], pairs[:, 1])), (count, count))
    return in_order(connected_components(graph, directed=False)[1].tolist())


def in_order(groups: Sequence[object]) -> NDArray[np.int64]:
    """Number groups in the order of their first members."""
    numbers: dict[object, int] = {}
    return np.array([numbers.setdefault(group, len(numbers)) for group in groups], np.int64)


@dataclass(frozen=True)
class Groups:
    """Images by group.

    numbers: the group of each image, int64 (N,), in the order of their first images.
    rule: what joined them, for people.
    setting: the value of `ingest.group` that finds them.
    """

    numbers: NDArray[np.int64]
    rule: str
    setting: str = "similar"

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
        words = [_words(file.stem, count) for file in files]
        yield f"the top folder and {first} of the file name", [*map("/".join, zip(tops, words, strict=True))]
        yield f"{first} of the file name", words
    yield "the folder", [str(file.parent) for file in files]


def by_name(
    paths: Sequence[str], looks: NDArray[np.float32], labels: Sequence[str | None]
) -> tuple[Groups | None, list[str]]:
    """Group images by their names.

    A rule holds where it makes 20 groups or more, none with more than a tenth of the images, at least one in twenty
    images is joined, and the pairs that it joins and a finer rule that holds does not are nearer than random pairs:
    the area under the ROC curve of the distance is at least 0.8. Of these the coarsest is taken. The folder is no
    group where it is the class.

    Args:
        paths: the path of each image below the folder that is read, with `/`.
        looks: the descriptors, (N, SIZE).
        labels: the class of each image.

    Returns:
        The groups, or None where no rule holds; and for each rule that does not hold the rule and the reason.
    """
    draw = np.random.default_rng(0)
    apart = draw.integers(0, len(paths), (_RANDOM_PAIRS, 2))
    apart = apart[apart[:, 0] != apart[:, 1]]
    far = distance(*looks[apart.T])
    best, finer, tried = None, np.arange(len(paths)), list[str]()
    for rule, names in rules(paths):
        numbers = in_order(names)
        sizes = np.bincount(numbers)
        if len(sizes) < _LEAST_GROUPS:
            reason = f"{len(sizes)} groups, {_LEAST_GROUPS} are needed"
        elif sizes.max() > LARGEST_BY_NAME * len(paths):
            reason = f"{sizes.max() / len(paths):.0%} of the images in one group, {LARGEST_BY_NAME:.0%} are allowed"
        elif sizes[sizes > 1].sum() < _LEAST_JOINED * len(paths):
            reason = "it joins almost no images"
        elif len(set(zip(names, labels, strict=True))) == len(set(labels)) == len(sizes):
            reason = "it is the class"
        elif len(pairs := _newly_joined(numbers, finer, draw)) and _auc(distance(*looks[pairs.T]), far) < _LEAST_AUC:
            reason = "images that it joins are not alike"
        else:
            best, finer = Groups(numbers, rule, "name"), numbers
            continue
        tried.append(f"{rule} ({reason})")
    return best, tried


def _newly_joined(numbers: NDArray[np.int64], finer: NDArray[np.int64], draw: np.random.Generator) -> NDArray[np.int64]:
    """Draw pairs of images of one group that are of different groups of a finer rule."""
    order = np.argsort(numbers, kind="stable")
    starts = np.searchsorted(numbers[order], np.arange(numbers.max() + 2))
    one = draw.integers(0, len(numbers), 4 * _RANDOM_PAIRS)
    low, high = starts[numbers[one]], starts[numbers[one] + 1]
    pairs = np.stack([one, order[draw.integers(low, high)]], axis=1)
    return pairs[finer[pairs[:, 0]] != finer[pairs[:, 1]]][:_RANDOM_PAIRS]


def _auc(near: NDArray[np.float64], far: NDArray[np.float64]) -> float:
    """Return the probability that a distance of `near` is below one of `far`, ties counted half."""
    far = np.sort(far)
    below = np.searchsorted(far, near, "left") + np.searchsorted(far, near, "right")
    return float(1 - below.mean() / (2 * len(far)))


def by_look(near: NDArray[np.int64], far: NDArray[np.float64]) -> Groups:
    """Group similar images, from `neighbours`: connected below the largest threshold at which groups stay sound.

    Sound: no group has more than 15 % of the images, and at least 60 % of the paths of two pairs are closed by a third
    pair. Chains of images that only resemble their neighbours are not closed.
    """
    count, best = len(near), Groups(np.arange(len(near)), "no similar images")
    for threshold in THRESHOLDS:
        pairs = _pairs(near, far, threshold)
        numbers = components(pairs, count)
        if np.bincount(numbers).max() <= LARGEST_BY_LOOK * count and _closed(pairs, count) >= _LEAST_CLOSED:
            best = Groups(numbers, f"similar images (distance below {threshold})")
    return best


def _pairs(near: NDArray[np.int64], far: NDArray[np.float64], threshold: float) -> NDArray[np.int64]:
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


def grouped(names: Sequence[str | None], looks: NDArray[np.float32], labels: Sequence[str | None]) -> Groups:
    """Group images by name and by near copies; where no rule on names holds, or a name is None, by similar images."""
    near, far = neighbours(looks)
    paths = [name for name in names if name is not None]
    named = by_name(paths, looks, labels)[0] if len(paths) == len(names) else None
    return by_look(near, far) if named is None else with_copies(named, near, far)


def with_copies(groups: Groups, near: NDArray[np.int64], far: NDArray[np.float64]) -> Groups:
    """Join groups that hold near copies of one another, from `neighbours`."""
    chain = np.argsort(groups.numbers, kind="stable")
    same = np.stack([chain[:-1], chain[1:]], axis=1)[np.diff(groups.numbers[chain]) == 0]
    numbers = components(np.concatenate([same, _pairs(near, far, TWIN)]), len(chain))
    return Groups(numbers, f"{groups.rule}, and near copies", groups.setting)
