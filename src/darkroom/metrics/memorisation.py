"""The panel of memorisation: generated images, and held-out real ones as if generated, among the training images.

The training images are read once, in batches; memory does not grow with their number. Time, measured on one core with
32 x 32 x 3 images and the in-domain extractor, is stated in docs/scores.md.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from darkroom.errors import DarkroomError
from darkroom.metrics.copies import copied, data_copying, gaps, nearer
from darkroom.metrics.nearest import COARSE, Found, Nearest, middle, mirrored, moved, reduced, shrunk

Features = Callable[[Tensor], Tensor]  # from uint8 images (n, C, H, W) to features (n, D) float32, on the CPU


class Images(Protocol):
    """Images by row."""

    def __len__(self) -> int: ...

    def __getitems__(self, rows: Sequence[int]) -> NDArray[np.uint8]:
        """Return images, uint8 (N, C, H, W)."""
        ...


@dataclass(frozen=True)
class Space:
    """How images are compared.

    queries: the images whose neighbours are wanted, (V, n, D).
    vectors: from training images, uint8, to what is compared with the queries, (m, D).
    finer: the same for what was found, where that is compared once more; None: `vectors`.
    views: from a slice of the images to what `finer` is compared with, (V', g, D'); None: the queries.
    """

    queries: Tensor
    vectors: Features
    finer: Features | None = None
    views: Callable[[slice], Tensor] | None = None


@dataclass(frozen=True)
class Near:
    """Some images of a set and what is nearest to them among the training images.

    rows: of the images in their set.
    found: in each space, in the order of `rows`.
    """

    rows: list[int]
    found: dict[str, Found]

    def closest(self, space: str, count: int) -> list[int]:
        """Return the places in `rows` of the `count` images of least d1 / d2, the least first."""
        return self.found[space].ratio.argsort(stable=True)[:count].tolist()


@dataclass(frozen=True)
class Panel:
    """What was measured.

    scores: `copies_SPACE`, `ct_SPACE` and, where asked for and possible, `fd_gap` and `kid_gap`, with their errors.
    floor: the same of held-out images as if they had been generated; of `ct` and gaps, of one half against the other.
    nearer: in each space, in which fraction of pairs a generated image lies nearer to the train split than a held-out
        one.
    made, held_out: the images and what is nearest to them.
    """

    scores: dict[str, float]
    floor: dict[str, float]
    nearer: dict[str, float]
    made: Near
    held_out: Near


def _batches(images: Images, rows: Sequence[int], batch: int) -> Iterator[Tensor]:
    for at in range(0, len(rows), batch):
        yield torch.from_numpy(images.__getitems__(rows[at : at + batch]))


def _stacked(function: Callable[[Tensor], Tensor], batches: Iterator[Tensor]) -> Tensor:
    return torch.cat([function(images) for images in batches])


def memorisation(
    made: tuple[Images, list[int]],
    held_out: tuple[Images, list[int]],
    train: Images,
    train_rows: Sequence[int],
    features: Features,
    *,
    batch: int,
    blocks: int,
    with_gaps: bool,
    device: torch.device,
    progress: Callable[[Iterator[Tensor]], Iterator[Tensor]] = lambda batches: batches,
) -> Panel:
    """Return the panel.

    Args:
        made: generated images and the rows that are looked at, in random order.
        held_out: real images that no training saw, likewise.
        train: all training images.
        train_rows: those with which the gaps are measured, at random, of the classes of the held-out ones.
        features: those of the in-domain extractor.
        batch: images read at once.
        blocks: of the jackknife of the gaps.
        with_gaps: whether gaps are measured; not of images that were made of held-out ones.
        device: where distances are computed.
        progress: wraps the pass over the training images.

    Raises:
        DarkroomError: a set holds no image, or images differ in shape.
    """
    sets = (made, held_out)
    if not made[1] or len(held_out[1]) < 2:
        raise DarkroomError(
            f"copies cannot be looked for with {len(made[1])} generated and {len(held_out[1])} held-out images: 1 and "
            "2 are needed."
        )
    real = slice(len(made[1]), None)
    pixels = torch.cat([_stacked(reduced, _batches(*each, batch)) for each in sets])
    seen = torch.cat([_stacked(features, _batches(*each, batch)) for each in sets])
    flipped = torch.cat([_stacked(lambda images: features(images.flip(-1)), _batches(*each, batch)) for each in sets])
    spaces = {
        "pixels": Space(mirrored(pixels, lambda images: images.flatten(1)[None]), lambda x: reduced(x).flatten(1)),
        "moved": Space(
            mirrored(shrunk(pixels, COARSE), moved),
            lambda images: middle(reduced(images, COARSE)),
            lambda images: middle(reduced(images)),
            lambda group: mirrored(pixels[group], moved),
        ),
        "features": Space(torch.stack([seen, flipped]), features),
    }
    searches = {name: Nearest(space.queries, device) for name, space in spaces.items()}
    for images in progress(_batches(train, range(len(train)), batch)):
        for name, space in spaces.items():
            searches[name].update(space.vectors(images))
    found = {}
    for name, space in spaces.items():
        rows = searches[name].candidates.tolist()
        candidates = _stacked(space.finer or space.vectors, _batches(train, rows, batch))
        found[name] = searches[name].settle(candidates, real, space.views)
    near = [
        Near(rows, {name: of[part] for name, of in found.items()})
        for (_, rows), part in zip(sets, (slice(real.start), real), strict=True)
    ]
    scores: dict[str, float] = {}
    floor: dict[str, float] = {}
    by_pairs: dict[str, float] = {}
    half = len(held_out[1]) // 2
    for name in found:
        one, other = (each.found[name] for each in near)
        scores |= copied(one, name) | {f"ct_{name}": data_copying(one.nearest, other.nearest)}
        floor |= copied(other, name) | {f"ct_{name}": data_copying(other.nearest[:half], other.nearest[half:])}
        by_pairs[name] = nearer(one.nearest, other.nearest)
    unseen = seen[real]
    count = min(len(train_rows), len(unseen))
    if with_gaps and min(len(made[1]), count) >= 2 * blocks:
        trained = _stacked(features, _batches(train, train_rows[:count], batch))
        scores |= gaps(seen[: real.start], trained, unseen[:count], blocks)
        if half >= 2 * blocks:
            few = min(half, count)
            floor |= gaps(unseen[:half], trained[:few], unseen[half : half + few], blocks)
    return Panel(scores, floor, by_pairs, *near)
