"""Scores that one extractor alone has: of Inception's logits, of CLIP's embeddings."""

from darkroom.metrics.cmmd import cmmd
from darkroom.metrics.inception_score import inception_scores
from darkroom.metrics.reference import Reference
from darkroom.metrics.views import Views


def scores_alone(seen: Views, reference: Reference, blocks: int) -> dict[str, float]:
    """Return `inception_score` of Inception, `cmmd` of CLIP, with their errors; of other extractors nothing.

    Args:
        seen: features of the images.
        reference: `matched` to the distribution of classes that they were asked to have.
        blocks: of the jackknife.
    """
    found = {} if seen.logits is None else inception_scores(seen.logits, blocks)
    if reference.extractor == "clip":
        found |= cmmd(seen.pool, reference.kid_features, blocks, reference.kid_weights)
    return found
