"""The features of a set of images, and from them its scores against another."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from darkroom.data.draw import drawn
from darkroom.errors import DarkroomError
from darkroom.metrics.batches import Views
from darkroom.metrics.frechet import covariance_root
from darkroom.metrics.kernel import within
from darkroom.metrics.measure import Metric, Samples
from darkroom.metrics.measure import measure as measure_by
from darkroom.metrics.moments import Moments
from darkroom.metrics.reference import Reference, moments_of
from darkroom.metrics.sample_scores import score_names
from darkroom.models.colours import to_rgb
from darkroom.models.evaluators.load import Extractor, stream_views
from darkroom.terminal.terminal import with_progress
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
    found = hashlib.sha256()
    each: list[bytes] = []

    def hashed() -> Iterator[Pixels]:
        for group in with_progress(images.batches(batch), len(images), what):
            found.update(group.tobytes())
            for pixels in to_rgb(torch.from_numpy(group)).numpy():
                each.append(hashlib.blake2b(str(pixels.shape).encode() + pixels.tobytes(), digest_size=16).digest())
            yield group

    seen: list[Views] = []
    done = 0
    for group in stream_views(extractor.network, hashed(), batch, device):
        for part in group.parts:
            if part is not None and not (finite := part.isfinite().all(dim=1)).all():
                bad = images.name(done + int((~finite).int().argmax()))
                raise DarkroomError(f"the features of {bad} are not finite: the weights of the extractor are damaged.")
        seen.append(group)
        done += len(group)
    whole = Views.joined(seen)
    return Seen(whole.pool, whole.spatial, whole.logits, found.hexdigest(), tuple(each))


def measure(made: Samples, real: Reference, metrics: Sequence[Metric]) -> dict[str, float]:
    """Return the scores of `made` with their standard errors, under the names of the table."""
    return score_names(made.extractor, measure_by(made, real, metrics).scores)


def reference_of(
    extractor: str, real: Views | None, pool: Moments | None = None, spatial: Moments | None = None
) -> Reference:
    """Return what samples compare with: features of images, published statistics in place of theirs, or both.

    Args:
        extractor: its name.
        real: reference images; None: there are statistics alone.
        pool: statistics in place of those of `real`.
        spatial: those of sFID.
    """
    features = real or Views(torch.zeros(0))
    found = _reference(extractor, pool or moments_of(features.pool), features.pool)
    if spatial is None and features.spatial is not None:
        spatial = moments_of(features.spatial)
    return found if spatial is None else replace(found, spatial=_reference(extractor, spatial, torch.zeros(0)))


def _reference(extractor: str, moments: Moments, kept: Tensor) -> Reference:
    kernel = within(kept) if len(kept) else None
    root = covariance_root(moments.cov)
    return Reference(extractor, "", moments.count, moments.mean, moments.cov, root, kept, kernel)


def noise_floor(
    extractor: str, made: Views, real: Views, metrics: Sequence[Metric]
) -> dict[str, dict[str, float]] | None:
    """Return the scores of real images, `real`, and of as many `samples` under the same conditions, each with both `n`.

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
    reference = reference_of(extractor, others)
    sets = {"real": real.take(order[:count]), "samples": made.take(torch.tensor(sorted(drawn(len(made), count))))}
    return {
        name: measure(Samples(extractor, one, BLOCKS), reference, metrics) | {"n": count, "n_reference": len(others)}
        for name, one in sets.items()
    }
