"""A set of images as an extractor sees it."""

# No effect on any output: reads what a command names

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from darkroom.errors import DarkroomError
from darkroom.metrics.batches import batched
from darkroom.models.evaluators.load import Extractor
from darkroom.terminal.progress import with_progress
from darkroom.tools.score.images import Images, Pixels


@dataclass(frozen=True)
class Seen:
    """Features of N images; 20 KB an image of Inception.

    sha256: of all pixels in their order.
    pool: (N, D) float32, what distances are taken in.
    spatial: (N, 2023) float32, those of sFID; None: of another network than Inception.
    logits: (N, 1008) float32, those of the Inception Score; None likewise.
    """

    sha256: str
    pool: Tensor
    spatial: Tensor | None = None
    logits: Tensor | None = None

    def __len__(self) -> int:
        return len(self.pool)

    def take(self, rows: Tensor) -> "Seen":
        """Return some of the images."""
        parts = (None if part is None else part[rows] for part in (self.spatial, self.logits))
        return Seen("", self.pool[rows], *parts)


def see(images: Images, extractor: Extractor, batch: int, device: torch.device, what: str) -> Seen:
    """Return the features of all images.

    Raises:
        DarkroomError: an image cannot be read, or its features are not finite; names it.
    """
    network = extractor.network.to(device).eval()
    widths = getattr(network, "widths", None)
    found = hashlib.sha256()

    def hashed() -> Iterator[Pixels]:
        for group in with_progress(images.batches(batch), len(images), what):
            found.update(group.tobytes())
            yield group

    rows = torch.empty(len(images), sum(widths) if widths else extractor.dim)
    done = 0
    for outputs in batched(getattr(network, "outputs", network.features), hashed(), batch, device):
        if not (finite := outputs.isfinite().all(dim=1)).all():
            bad = done + int((~finite).int().argmax())
            raise DarkroomError(
                f"the features of {images.name(bad)} are not finite: the weights of the extractor are damaged."
            )
        rows[done : done + len(outputs)] = outputs
        done += len(outputs)
    if widths is None:
        return Seen(found.hexdigest(), rows)
    pool, spatial, logits = rows.split(widths, dim=1)
    return Seen(found.hexdigest(), pool, spatial, logits)
