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
from darkroom.random import order

Features = Callable[[Tensor], Tensor]  # from uint8 images (n, C, H, W) to features (n, D) float32, on the CPU


class Images(Protocol):
    """Images by row."""

    def __len__(self) -> int: ...

    def __getitems__(self, rows: Sequence[int]) -> NDArray[np.uint8]:
        """Return images, uint8 (N, C, H, W)."""
        ...


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


def drawn(images: Images, count: int) -> list[int]:
    """Return the rows of at most `count` images, at random, in random order."""
    return order(0, len(images), np.arange(min(count, len(images)))).tolist()


def _batches(images: Images, rows: Sequence[int], batch: int) -> Iterator[Tensor]:
    for at in range(0, len(rows), batch):
        yield torch.from_numpy(images.__getitems__(rows[at : at + batch]))


def _stacked(function: Callable[[Tensor], Tensor], batches: Iterator[Tensor]) -> Tensor:
    return torch.cat([function(images) for images in batches])


def memorisation(
    made: tuple[Images, list[int]],
    held_out: tuple[Images, list[int]],
    train: Images,
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
    flipped = torch.cat([_stacked(lambda x: features(x.flip(-1)), _batches(*each, batch)) for each in sets])
    searches = {
        "pixels": Nearest(mirrored(pixels, lambda x: x.flatten(1)[None]), device),
        "moved": Nearest(mirrored(shrunk(pixels, COARSE), moved), device),
        "features": Nearest(torch.stack([seen, flipped]), device),
    }
    # The vectors by which training images are looked for, and those by which what was found is compared.
    vectors = {
        "pixels": (lambda x: reduced(x).flatten(1),) * 2,
        "moved": (lambda x: middle(reduced(x, COARSE)), lambda x: middle(reduced(x))),
        "features": (features, features),
    }
    for images in progress(_batches(train, range(len(train)), batch)):
        for space, search in searches.items():
            search.update(vectors[space][0](images))
    views = {"moved": lambda group: mirrored(pixels[group], moved)}
    found = {}
    for space, search in searches.items():
        candidates = _stacked(vectors[space][1], _batches(train, search.candidates.tolist(), batch))
        found[space] = search.settle(candidates, real, views.get(space))
    first = slice(None, real.start)
    near = [Near(rows, {space: of[part] for space, of in found.items()}) for (_, rows), part in zip(sets, (first, real), strict=True)]
    scores, floor, by_pairs = {}, {}, {}
    half = len(held_out[1]) // 2
    for space in found:
        one, other = (each.found[space] for each in near)
        scores |= copied(one, space) | {f"ct_{space}": data_copying(one.nearest, other.nearest)}
        floor |= copied(other, space) | {f"ct_{space}": data_copying(other.nearest[:half], other.nearest[half:])}
        by_pairs[space] = nearer(one.nearest, other.nearest)
    if with_gaps:
        unseen = seen[real]
        trained = _stacked(features, _batches(train, drawn(train, len(unseen)), batch))
        count = min(len(trained), len(unseen))
        if min(len(made[1]), count) >= 2 * blocks:
            scores |= gaps(seen[first], trained[:count], unseen[:count], blocks)
        if min(half, count) >= 2 * blocks:
            floor |= gaps(unseen[:half], trained[:half], unseen[half : 2 * half], blocks)
    return Panel(scores, floor, by_pairs, *near)
