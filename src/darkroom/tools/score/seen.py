"""A set of images as an extractor sees it."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from darkroom.errors import DarkroomError
from darkroom.metrics.batches import Views
from darkroom.models.colours import to_rgb
from darkroom.models.evaluators.load import Extractor, stream, views, whole
from darkroom.terminal.terminal import with_progress
from darkroom.tools.score.images import Images, Pixels


@dataclass(frozen=True)
class Seen(Views):
    """Features of N images; 20 KB an image of Inception.

    sha256: of all pixels in their order.
    images: the hash of the pixels of each image in RGB, N.
    """

    sha256: str = ""
    images: tuple[bytes, ...] = ()


def see(images: Images, extractor: Extractor, batch: int, device: torch.device, what: str) -> Seen:
    """Return the features of all images.

    Raises:
        DarkroomError: an image cannot be read, or its features are not finite; names it.
    """
    network = extractor.network
    found = hashlib.sha256()
    each: list[bytes] = []

    def hashed() -> Iterator[Pixels]:
        for group in with_progress(images.batches(batch), len(images), what):
            found.update(group.tobytes())
            each.extend(_hash(pixels) for pixels in to_rgb(torch.from_numpy(group)).numpy())
            yield group

    rows = torch.empty(len(images), sum(getattr(network, "widths", (extractor.dim,))))
    done = 0
    for outputs in stream(whole(network), hashed(), batch, device):
        if not (finite := outputs.isfinite().all(dim=1)).all():
            bad = done + int((~finite).int().argmax())
            raise DarkroomError(
                f"the features of {images.name(bad)} are not finite: the weights of the extractor are damaged."
            )
        rows[done : done + len(outputs)] = outputs
        done += len(outputs)
    parts = views(network, rows)
    return Seen(parts.pool, parts.spatial, parts.logits, found.hexdigest(), tuple(each))


def copies(made: Seen, real: Seen) -> int:
    """Return how many images of `made` have the pixels, in RGB, of one of `real`."""
    known = set(real.images)
    return sum(image in known for image in made.images)


def _hash(pixels: Pixels) -> bytes:
    return hashlib.blake2b(str(pixels.shape).encode() + pixels.tobytes(), digest_size=16).digest()
