"""The scores of one set of images against another, from their features."""

# No effect on any output: reads what a command names

import torch
from torch import Tensor

from darkroom.data.draw import drawn
from darkroom.errors import DarkroomError
from darkroom.metrics.cmmd import cmmd
from darkroom.metrics.frechet import covariance_root, few_jackknife, frechet_jackknife
from darkroom.metrics.inception_score import inception_scores
from darkroom.metrics.kernel import kernel_jackknife, within
from darkroom.metrics.kernel_subsets import SIZE, kernel_subsets
from darkroom.metrics.manifold import manifold
from darkroom.metrics.moments import BlockMoments, Moments
from darkroom.metrics.reference import moments_of
from darkroom.metrics.table import score_names
from darkroom.metrics.uncertainty import Jackknife, assign_blocks
from darkroom.tools.score.conventions import Convention
from darkroom.tools.score.seen import Seen

BLOCKS = 10
LEAST = 2 * BLOCKS  # images


def frechet(reference: Moments, features: Tensor, block: Tensor) -> Jackknife:
    """Return the Fréchet distance of features (N, D) in blocks (N,): the small form where N is at most D."""
    root = covariance_root(reference.cov)
    if len(features) <= features.shape[1]:
        return few_jackknife(reference, root, features, block)
    sums = BlockMoments(features.shape[1], BLOCKS)
    for rows, index in zip(features.split(4096), block.split(4096), strict=True):
        sums.update(rows, index)
    return frechet_jackknife(reference, root, sums.compute())


def measure(
    extractor: str,
    made: Seen,
    real: Seen | None,
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
        fd = frechet(pool, made.pool, block)
        found |= {"fd": fd.value, "fd_debiased": fd.debiased, "fd_se": fd.se}
    if real is not None:
        kid = kernel_jackknife(real.pool, within(real.pool), made.pool, block)
        found |= {"kid": kid.value, "kid_se": kid.se}
        if convention.subsets and extractor == "inception" and min(len(made), len(real)) >= SIZE:
            subsets = kernel_subsets(made.pool, real.pool)
            found |= {"kid_subsets": subsets.mean, "kid_subsets_spread": subsets.spread}
    found = score_names(extractor, found)
    if spatial is not None and made.spatial is not None:
        sfid = frechet(spatial, made.spatial, block)
        found |= {"sfid": sfid.value, "sfid_se": sfid.se}
    if made.logits is not None:
        found |= inception_scores(made.logits, BLOCKS)
        found |= convention.inception_score_splits(made.logits)
    if real is not None:
        found |= manifold(made.pool, real.pool)
        if extractor == "clip":
            found |= cmmd(made.pool, real.pool, BLOCKS)
    return found


def noise_floor(extractor: str, real: Seen, count: int, convention: Convention) -> tuple[dict[str, float], int]:
    """Return what real images score: as many as were generated, at most half, against the others; and their number.

    Nothing where there are too few.
    """
    count = min(count, len(real) // 2)
    if count < LEAST:
        return {}, 0
    order = torch.tensor(drawn(len(real)))
    return measure(extractor, real.take(order[:count]), real.take(order[count:]), convention), count


def require_enough(name: object, count: int) -> None:
    """Check that a set has enough images for a score with an error.

    Raises:
        DarkroomError: it has not.
    """
    if count < LEAST:
        raise DarkroomError(f"{name} holds {count} images, and scores with their errors need {LEAST} at least.")
