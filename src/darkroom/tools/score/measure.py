"""The features of a set of images, and from them its scores against another."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch

from darkroom.data.draw import drawn
from darkroom.errors import DarkroomError
from darkroom.metrics.batches import Views
from darkroom.metrics.frechet import covariance_root, frechet_scores
from darkroom.metrics.inception_score import inception_scores
from darkroom.metrics.kernel import SIZE, cmmd, kernel_jackknife, kernel_subsets, within
from darkroom.metrics.manifold import manifold
from darkroom.metrics.moments import Moments
from darkroom.metrics.reference import moments_of
from darkroom.metrics.sample_scores import score_names
from darkroom.metrics.uncertainty import assign_blocks
from darkroom.models.colours import to_rgb
from darkroom.models.evaluators.load import Extractor, stream, views, whole
from darkroom.terminal.terminal import with_progress
from darkroom.tools.score.conventions import Convention
from darkroom.tools.score.images import Images, Pixels

BLOCKS = 10
LEAST = 2 * BLOCKS  # images


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


def measure(
    extractor: str,
    made: Views,
    real: Views | None,
    convention: Convention,
    pool: Moments | None = None,
    spatial: Moments | None = None,
) -> dict[str, float]:
    """Return the scores of `made` with their standard errors, under the names of the table.

    Args:
        extractor: its name, which names the distances.
        made: at least 20 images.
        real: reference images; None: there are statistics alone.
        convention: a program's way.
        pool: reference statistics, in place of those of `real`.
        spatial: those of sFID.
    """
    block = assign_blocks(len(made), BLOCKS)
    if pool is None and real is not None:
        pool = moments_of(real.pool)
    if spatial is None and real is not None and real.spatial is not None:
        spatial = moments_of(real.spatial)
    found: dict[str, float] = {}
    if pool is not None:
        found |= frechet_scores("fd", pool, covariance_root(pool.cov), made.pool, block)
    if real is not None:
        kid = kernel_jackknife(real.pool, within(real.pool), made.pool, block)
        found |= kid.named("kid")
        if convention.subsets and extractor == "inception" and min(len(made), len(real)) >= SIZE:
            subsets = kernel_subsets(made.pool, real.pool)
            found |= {"kid_subsets": subsets.mean, "kid_subsets_spread": subsets.spread}
    found = score_names(extractor, found)
    if spatial is not None and made.spatial is not None:
        found |= frechet_scores("sfid", spatial, covariance_root(spatial.cov), made.spatial, block)
    if made.logits is not None:
        found |= inception_scores(made.logits, BLOCKS)
        found |= convention.inception_score_splits(made.logits)
    if real is not None:
        found |= manifold(made.pool, real.pool)
        if extractor == "clip":
            found |= cmmd(made.pool, real.pool, BLOCKS)
    return found


class Floor(NamedTuple):
    """What real images and samples score as equals: both `n` images, against the same `n_reference` real ones."""

    n: int
    n_reference: int
    real: dict[str, float]
    samples: dict[str, float]


def noise_floor(extractor: str, made: Views, real: Views, convention: Convention) -> Floor | None:
    """Return the scores of real images, and beside them those of samples under the same conditions.

    Two disjoint draws of the reference: as many images as there are samples, at most half, and the others. The first
    draw and a draw of as many samples are scored against the others. Coverage, recall and plain Fréchet distances
    depend on both numbers, so they compare only here, and not with the scores of all samples against all real images.

    None where there are too few images.
    """
    count = min(len(made), len(real) // 2)
    if count < LEAST:
        return None
    order = torch.tensor(drawn(len(real)))
    others = real.take(order[count:])
    few = made.take(torch.tensor(sorted(drawn(len(made), count))))
    both = (measure(extractor, one, others, convention) for one in (real.take(order[:count]), few))
    return Floor(count, len(others), *both)


def require_enough(name: object, count: int) -> None:
    """Check that a set has enough images for a score with an error.

    Raises:
        DarkroomError: it has not.
    """
    if count < LEAST:
        raise DarkroomError(f"{name} holds {count} images, and scores with their errors need {LEAST} at least.")
