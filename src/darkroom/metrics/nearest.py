"""The nearest training images of each image, over a stream of them: memory does not grow with their number.

Vectors are pixels, or an extractor's features; distances are Euclidean. The stream is compared block by block in
float32, keeping the `CANDIDATES` nearest of each image; these are compared again in float64, and sorted. Memory:
the V views of n images, V n D float32, a block of 1,024 training vectors, and some matrices (n, 1024): of 2,000 images
of 32 x 32 x 3 with their mirror images 100 MB, moved as well 130 MB, whether there are 1,000 training images or
1,000,000; plus 4 u D bytes for the u candidates, at most 6 n.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from darkroom.data.colours import premultiplied
from darkroom.errors import DarkroomError

SIZE = 32  # pixels: larger images are reduced to it by area
COARSE = 16  # pixels a side at which candidates for shifted images are searched for
CANDIDATES = 6  # nearest training images that are kept for each image
NEAR_DUPLICATE = 1 / 3  # of the scale: training images nearer to each other than that count as one
_ROWS = 1024  # training vectors in a block
_GROUP = 64  # images whose candidates are compared at once


def reduced(images: Tensor, most: int = SIZE) -> Tensor:
    """Return uint8 images (N, C, H, W) as float32 (N, C, h, w) in [0, 1], by area at most `most` pixels a side.

    Colours of RGBA are multiplied by alpha, so that invisible ones do not count.
    """
    return shrunk(premultiplied(images) / 255, most)


def shrunk(pixels: Tensor, most: int) -> Tensor:
    """Return pixels (N, C, H, W), reduced by area to at most `most` a side."""
    size = [min(most, side) for side in pixels.shape[2:]]
    return pixels if list(pixels.shape[2:]) == size else functional.interpolate(pixels, size, mode="area")


def _reach(pixels: Tensor) -> int:
    """Return the shift of an image in pixels: a sixteenth of its side, at least 1."""
    return max(1, pixels.shape[2] // COARSE)


def middle(pixels: Tensor) -> Tensor:
    """Return pixels (N, C, H, W) without borders, a sixteenth of the side, as vectors (N, D)."""
    reach = _reach(pixels)
    return pixels[..., reach:-reach, reach:-reach].flatten(1)


def moved(pixels: Tensor) -> Tensor:
    """Return `middle` of images shifted in each direction by up to a sixteenth of their side, (V, N, D).

    They are windows, so a shifted image meets its whole original, whatever came in at its border.
    """
    reach, (height, width) = _reach(pixels), pixels.shape[2:]
    places = [(y, x) for y in range(2 * reach + 1) for x in range(2 * reach + 1)]
    high, wide = height - 2 * reach, width - 2 * reach
    return torch.stack([pixels[..., y : y + high, x : x + wide].flatten(1) for y, x in places])


def mirrored(pixels: Tensor, views: Callable[[Tensor], Tensor]) -> Tensor:
    """Return views (V, N, D) of images and of their mirror images, (2V, N, D); the latter second."""
    return torch.cat([views(pixels), views(pixels.flip(-1))])


@dataclass(frozen=True)
class Closest:
    """The training images nearest to each of n images.

    nearest: d1, the distance to the nearest one, (n,) float64.
    second: d2, the distance to the nearest one that is no near duplicate of it, (n,) float64.
    row: of the nearest one among all training images, (n,) int64.
    """

    nearest: Tensor
    second: Tensor
    row: Tensor

    def __getitem__(self, rows: slice) -> "Closest":
        return Closest(self.nearest[rows], self.second[rows], self.row[rows])

    @property
    def ratio(self) -> Tensor:
        """d1 / d2, (n,) float64: 0 for an exact copy, near 1 for an image between training images."""
        return torch.where(self.nearest > 0, self.nearest / self.second, 0.0)


class Nearest:
    """Finds the nearest training images of some images in a stream of training images.

    Call `update` with all training vectors, in order, in groups of any size; then read `candidates`, and call `settle`
    with their vectors.
    """

    def __init__(self, queries: Tensor, device: torch.device | None = None) -> None:
        """Start the search.

        Args:
            queries: vectors of n images in V views, (V, n, D) float32, such as plain and mirrored: the distance of an
                image is that of its nearest view.
            device: where blocks are compared; None: the CPU.
        """
        self._device = device or torch.device("cpu")
        self._centre = queries.mean(dim=(0, 1))  # distances in float32 lose less to rounding near the origin
        self._queries = queries
        self._centred = (queries - self._centre).to(self._device)
        self._squares = self._centred.square().sum(-1)  # (V, n)
        count = queries.shape[1]
        self._best = torch.full((count, 0), torch.inf, device=self._device)
        self._rows = torch.zeros(count, 0, dtype=torch.int64, device=self._device)
        self._held: list[Tensor] = []
        self._seen = 0

    def update(self, vectors: Tensor) -> None:
        """Add the next training vectors, (m, D) float32.

        Raises:
            DarkroomError: the number of values differs from the images'.
        """
        if vectors.shape[1] != self._queries.shape[2]:
            raise DarkroomError(
                f"training images of {vectors.shape[1]} values cannot be compared with images of "
                f"{self._queries.shape[2]}: both must have the same size and number of channels."
            )
        self._held.append(vectors)
        if sum(map(len, self._held)) >= _ROWS:
            self._compare()

    def _compare(self) -> None:
        held, self._held = self._held, []
        for group in torch.cat(held).split(_ROWS) if held else ():
            block = (group - self._centre).to(self._device)
            lengths = block.square().sum(1)
            squares = torch.full((len(self._best), len(block)), torch.inf, device=self._device)
            for view, own in zip(self._centred, self._squares, strict=True):
                squares = torch.minimum(squares, torch.addmm(lengths, view, block.T, alpha=-2) + own[:, None])
            numbers = torch.arange(self._seen, self._seen + len(block), device=self._device)
            best = torch.cat([self._best, squares], dim=1)
            rows = torch.cat([self._rows, numbers.expand(len(squares), -1)], dim=1)
            self._best, at = best.topk(min(CANDIDATES, best.shape[1]), dim=1, largest=False)
            self._rows = rows.gather(1, at)
            self._seen += len(block)

    @property
    def candidates(self) -> Tensor:
        """The rows of the training images that may be nearest to any image, (u,) int64, ascending.

        Raises:
            DarkroomError: no training images were added.
        """
        self._compare()
        if not self._seen:
            raise DarkroomError("there are no training images to search for copies: the train split is empty.")
        return self._rows.unique().cpu()

    def settle(self, vectors: Tensor, real: slice, views: Callable[[slice], Tensor] | None = None) -> Closest:
        """Return the nearest images, from the vectors of `candidates`, (u, D) float32, in their order.

        The second nearest image is the nearest candidate that lies at least `NEAR_DUPLICATE` of a scale from the
        nearest one. Otherwise an image that the train split holds twice, in two files, hides its copies:
        both distances are near 0, and their ratio is near 1. If all candidates are near duplicates, the scale itself
        is the second distance. The scale is the median d1 of the images `real`, which are not in the train
        split.

        `views` returns the vectors of some images, (V, g, D) float32, if `vectors` are of another kind than `update`'s;
        None: the queries.
        """
        rows = self.candidates
        slots = torch.searchsorted(rows, self._rows.cpu())  # (n, k) into vectors
        views = views or (lambda group: self._queries[:, group])
        groups = [slice(at, at + _GROUP) for at in range(0, len(slots), _GROUP)]
        near = torch.cat([_distances(views(group), vectors[slots[group]]) for group in groups])  # (n, k)
        # The first row among equal distances, regardless of the order in which float32 found them.
        order = slots.argsort(dim=1)
        order = order.gather(1, near.gather(1, order).argsort(dim=1, stable=True))
        near, slots = near.gather(1, order), slots.gather(1, order)
        usual = near[real, 0].median()
        apart = torch.cat([_distances(vectors[slots[group, 0]][None], vectors[slots[group]]) for group in groups])
        others = torch.where(apart > NEAR_DUPLICATE * usual, near, torch.inf).amin(dim=1)
        second = torch.where(others.isinf(), near[:, 0].clamp(min=usual), others)
        return Closest(near[:, 0], second, rows[slots[:, 0]])


def _distances(views: Tensor, vectors: Tensor) -> Tensor:
    """Return the distances of g images, in their nearest of V views, (V, g, D), from k vectors each, (g, k, D).

    In float64, from differences: an exact copy has 0, unlike from a matrix product. (g, k).
    """
    vectors = vectors.double()
    nearest = vectors.new_full(vectors.shape[:2], torch.inf)
    for view in views:
        nearest = torch.minimum(nearest, (view.double()[:, None] - vectors).norm(dim=2))
    return nearest
