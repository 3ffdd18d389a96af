"""Memorisation: whether generated images lie nearer to training images than held-out real ones do.

- The fraction of images with d1 / d2 < 1/3, d1 and d2 the distances to the nearest and to the second nearest training
  image: Yoon et al., "Diffusion probabilistic models generalize when they fail to memorize", 2023; Gu et al., "On
  memorization in diffusion models", 2023 (arXiv 2310.02664).
- C_T: Meehan et al., "A non-parametric test to detect data-copying in generative models", 2020, with one cell.
- The gap of a distance: from training images minus from the same number of held-out ones.

None finds all copies. Each is reported together with its value for held-out real images.
The training images are read once, in batches; memory does not grow with their number. Time, measured on one core with
32 x 32 x 3 images and the in-domain extractor, is stated in docs/results/scores.md.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from darkroom.data.reader import ImageShards
from darkroom.errors import DarkroomError
from darkroom.metrics.kernel import cubic, within
from darkroom.metrics.nearest import COARSE, Closest, Nearest, middle, mirrored, moved, reduced, shrunk
from darkroom.metrics.reference import frechet_between
from darkroom.metrics.score import share_and_error
from darkroom.metrics.uncertainty import assign_blocks, jackknife

Features = Callable[[Tensor], Tensor]  # from uint8 images (n, C, H, W) to features (n, D) float32, on the CPU
Progress = Callable[[Iterator[Tensor]], Iterator[Tensor]]


@dataclass(frozen=True)
class Space:
    """How images are compared.

    queries: the images whose neighbours are searched for, (V, n, D).
    vectors: from training images, uint8, to vectors that are compared with the queries, (m, D).
    finer: the same for the candidates, which are compared again; None: `vectors`.
    views: from a slice of the images to the queries of `finer`, (V', g, D'); None: the queries.
    """

    queries: Tensor
    vectors: Features
    finer: Features | None = None
    views: Callable[[slice], Tensor] | None = None


@dataclass(frozen=True)
class Near:
    """Some images of a set and their nearest training images.

    rows: of the images in their set.
    neighbours: in each space, in the order of `rows`.
    """

    rows: list[int]
    neighbours: dict[str, Closest]

    def closest(self, space: str, count: int) -> list[int]:
        """Return the places in `rows` of the `count` images with the smallest d1 / d2, ascending."""
        return self.neighbours[space].ratio.argsort(stable=True)[:count].tolist()


@dataclass(frozen=True)
class Panel:
    """The measured scores and the nearest images.

    scores: `copies_SPACE`, `ct_SPACE` and, if requested and possible, `fd_gap` and `kid_gap`, with their errors.
    floor: the same for held-out images as if they were generated; `ct` and gaps compare one half with the other.
    nearer: by space, the fraction of pairs in which a generated image lies nearer to the train split than a held-out
        one.
    samples, held_out: the images and their nearest training images.
    """

    scores: dict[str, float]
    floor: dict[str, float]
    nearer: dict[str, float]
    samples: Near
    held_out: Near


def _batches(images: ImageShards, rows: Sequence[int], batch: int) -> Iterator[Tensor]:
    for at in range(0, len(rows), batch):
        yield torch.from_numpy(images.__getitems__(rows[at : at + batch]))


def _stacked(function: Callable[[Tensor], Tensor], batches: Iterator[Tensor]) -> Tensor:
    return torch.cat([function(images) for images in batches])


def moved_space(pixels: Tensor) -> Space:
    """Return the space of pixels (n, C, h, w) from `reduced`, also mirrored, and moved by a sixteenth of the side."""
    return Space(
        mirrored(shrunk(pixels, COARSE), moved),
        lambda images: middle(reduced(images, COARSE)),
        lambda images: middle(reduced(images)),
        lambda group: mirrored(pixels[group], moved),
    )


def search(
    spaces: Mapping[str, Space],
    train: ImageShards,
    real: slice,
    batch: int,
    device: torch.device,
    progress: Progress = lambda batches: batches,
) -> dict[str, Closest]:
    """Return the nearest training images of the queries of each space; `real` are those that are held-out images."""
    searches = {name: Nearest(space.queries, device) for name, space in spaces.items()}
    for images in progress(_batches(train, range(len(train)), batch)):
        for name, space in spaces.items():
            searches[name].update(space.vectors(images))
    neighbours = {}
    for name, space in spaces.items():
        rows = searches[name].candidates.tolist()
        candidates = _stacked(space.finer or space.vectors, _batches(train, rows, batch))
        neighbours[name] = searches[name].settle(candidates, real, space.views)
    return neighbours


def memorisation(
    samples: tuple[ImageShards, list[int]],
    held_out: tuple[ImageShards, list[int]],
    train: ImageShards,
    train_rows: Sequence[int],
    features: Features,
    *,
    batch: int,
    blocks: int,
    with_gaps: bool,
    device: torch.device,
    progress: Progress = lambda batches: batches,
) -> Panel:
    """Measure memorisation.

    Args:
        samples: generated images and the rows to examine, in random order.
        held_out: the same for held-out real images.
        train: all training images.
        train_rows: rows for the gaps, in random order, of the classes of the held-out images.
        features: those of the in-domain extractor.
        batch: images read at once.
        blocks: blocks of the jackknife of the gaps.
        with_gaps: whether gaps are measured; not for images generated from held-out ones.
        device: where distances are computed.
        progress: wraps the pass over the training images.

    Raises:
        DarkroomError: a set holds no image, or images differ in shape.
    """
    sets = (samples, held_out)
    if not samples[1] or len(held_out[1]) < 2:
        raise DarkroomError(
            f"cannot search for copies with {len(samples[1])} generated and {len(held_out[1])} held-out images: at "
            "least 1 and 2 are needed."
        )
    real = slice(len(samples[1]), None)
    pixels = torch.cat([_stacked(reduced, _batches(*each, batch)) for each in sets])
    plain = torch.cat([_stacked(features, _batches(*each, batch)) for each in sets])
    flipped = torch.cat([_stacked(lambda images: features(images.flip(-1)), _batches(*each, batch)) for each in sets])
    spaces = {
        "pixels": Space(mirrored(pixels, lambda images: images.flatten(1)[None]), lambda x: reduced(x).flatten(1)),
        "moved": moved_space(pixels),
        "features": Space(torch.stack([plain, flipped]), features),
    }
    neighbours = search(spaces, train, real, batch, device, progress)
    near = [
        Near(rows, {name: of[part] for name, of in neighbours.items()})
        for (_, rows), part in zip(sets, (slice(real.start), real), strict=True)
    ]
    scores: dict[str, float] = {}
    floor: dict[str, float] = {}
    by_pairs: dict[str, float] = {}
    half = len(held_out[1]) // 2
    for name in neighbours:
        one, other = (each.neighbours[name] for each in near)
        scores |= copied(one, name) | {f"ct_{name}": data_copying(one.nearest, other.nearest)}
        floor |= copied(other, name) | {f"ct_{name}": data_copying(other.nearest[:half], other.nearest[half:])}
        by_pairs[name] = nearer(one.nearest, other.nearest)
    unseen = plain[real]
    count = min(len(train_rows), len(unseen))
    if with_gaps and min(len(samples[1]), count) >= 2 * blocks:
        trained = _stacked(features, _batches(train, train_rows[:count], batch))
        scores |= gaps(plain[: real.start], trained, unseen[:count], blocks)
        if half >= 2 * blocks:
            few = min(half, count)
            floor |= gaps(unseen[:half], trained[:few], unseen[half : half + few], blocks)
    return Panel(scores, floor, by_pairs, *near)


RATIO = 1 / 3  # d1 / d2 below which an image counts as a copy
NEAR = 0.05  # fraction of held-out images that count as near: chance for an image that is new
COPY = "a copy of"


def judged(neighbours: Closest, real: slice) -> list[str]:
    """Return `COPY`, "near" or "new" for each image; held-out images, those of `real`, calibrate "near"."""
    near, copies = neighbours.nearest < neighbours.nearest[real].quantile(NEAR), neighbours.ratio < RATIO
    return [COPY if copy else "near" if each else "new" for copy, each in zip(copies, near, strict=True)]


def copied(neighbours: Closest, space: str) -> dict[str, float]:
    """Return `copies_SPACE`, the fraction of images with d1 / d2 below 1/3, and its standard error."""
    share = (neighbours.ratio < RATIO).double().mean().item()
    return share_and_error(f"copies_{space}", share, len(neighbours.nearest))


def data_copying(fake: Tensor, real: Tensor) -> float:
    """Return C_T: the Mann-Whitney z of distances to the nearest training image, m generated against n real images.

    z = (U - mn/2) / sqrt(mn/12 ((m + n + 1) - Σ (t³ - t) / ((m + n)(m + n - 1)))), U the number of pairs in which the
    generated image lies further away, a tie half a pair, t the sizes of the ties. Near 0 (its deviation is 1) if both
    lie equally near; far below 0 if generated images lie nearer, as copies do; far above 0 if they lie further away, as
    bad images do. It grows with the root of the number of images.
    """
    m, n = len(fake), len(real)
    _, group, sizes = torch.cat([fake, real]).unique(return_inverse=True, return_counts=True)
    last = sizes.cumsum(0).double()
    ranks = (last - (sizes - 1) / 2)[group]  # the mean rank of a tie
    wins = ranks[:m].sum() - m * (m + 1) / 2
    ties = (sizes.double() ** 3 - sizes).sum() / ((m + n) * max(1, m + n - 1))
    variance = m * n / 12 * (m + n + 1 - ties)
    return float((wins - m * n / 2) / variance.sqrt()) if variance > 0 else 0.0


def nearer(fake: Tensor, real: Tensor) -> float:
    """Return the fraction of pairs in which the generated image lies nearer to the training images than the real one.

    A tie is half a pair; 1/2 for images that lie equally near. Arguments as in `data_copying`.
    """
    return ((fake[:, None] < real).double() + (fake[:, None] == real).double() / 2).mean().item()


Distance = Callable[[Tensor, Tensor], float]  # of features (n, D) from features of a reference (m, D)


def _kernel(fake: Tensor, reference: Tensor) -> float:
    return float(within(fake) + within(reference) - 2 * cubic(fake.double(), reference.double()).mean())


def gaps(fake: Tensor, train: Tensor, held_out: Tensor, blocks: int) -> dict[str, float]:
    """Return `fd_gap` and `kid_gap`: how much nearer (below 0) images lie to training images than to held-out ones.

    distance(fake, train) - distance(fake, held_out), of features (n, D) and twice (m, D) float32, in random order. Both
    references have the same number of images, so the bias of a Fréchet distance, which depends on it and on the number
    of generated images, cancels. The error, `fd_gap_se`, is the root of the sum of three squared jackknife errors: over
    blocks of generated, training and held-out images; if all three have one distribution it is up to half too large.

    Raises:
        DarkroomError: the references differ in size, or there are fewer than two images a block.
    """
    if len(train) != len(held_out):
        raise DarkroomError(f"a gap needs as many training as held-out images, not {len(train)} and {len(held_out)}.")
    if min(len(fake), len(train)) < 2 * blocks:
        raise DarkroomError(f"{len(fake)} and {len(train)} images are too few for {blocks} blocks of a gap: use more.")
    scores: dict[str, float] = {}
    for name, distance in {"fd_gap": frechet_between, "kid_gap": _kernel}.items():
        whole = [fake, train, held_out]
        value, squares = _difference(distance, whole), 0.0
        for place, of in enumerate(whole):
            block = assign_blocks(len(of), blocks)
            others = ([*whole[:place], of[block != number], *whole[place + 1 :]] for number in range(blocks))
            squares += (jackknife(value, [_difference(distance, sets) for sets in others]).se or 0.0) ** 2
        scores |= {name: value, f"{name}_se": math.sqrt(squares)}
    return scores


def _difference(distance: Distance, sets: Sequence[Tensor]) -> float:
    fake, train, held_out = sets
    return distance(fake, train) - distance(fake, held_out)
