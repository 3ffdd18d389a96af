"""The Fréchet and kernel distances by name, in the features of each extractor. Loads no torch."""

import re
from collections.abc import Mapping
from dataclasses import replace

from darkroom.metrics.score import Score

# In the in-domain extractor's space, and then in Inception's: FID is Inception's, and nobody else's.
FRECHET, DEBIASED, KERNEL = (
    Score(
        "fd",
        "distances",
        "Fréchet distance: how far mean and covariance of the generated images' features lie from "
        "those of the reference images. Lower is better; its bias shrinks with n, so it compares at "
        "equal n only.",
        formula="|m1 - m2|^2 + tr(S1 + S2 - 2 (S1^1/2 S2 S1^1/2)^1/2), unbiased covariances, float64, at "
        "n_fake samples",
        error="sqrt((B - 1) / B sum_b (fd without block b - their mean)^2)",
    ),
    Score(
        "fd_debiased",
        "distances",
        "fd without its bias of order 1/n, so that it compares across n.",
        formula="B fd - (B - 1) mean(fd without block b), blocks drawn at random, classes spread",
    ),
    Score(
        "kid",
        "distances",
        "Kernel distance: the squared maximum mean discrepancy between the features of generated and "
        "reference images, with a cubic kernel. Lower is better; it has no bias, so it can fall below "
        "0.",
        formula="unbiased MMD^2 over all pairs, kernel (x.y / D + 1)^3, float64",
        error="as fd_se",
    ),
)
DISTANCES = (
    FRECHET,
    DEBIASED,
    KERNEL,
    replace(
        FRECHET,
        name="fid",
        meaning="The Fréchet distance in the features of the Inception network. No other network's is called FID.",
    ),
    replace(DEBIASED, name="fid_debiased", meaning="fid without its bias of order 1/n, so that it compares across n."),
    replace(KERNEL, name="inception_kid", meaning="The kernel distance in the features of the Inception network."),
    *(
        replace(score, name=f"{base}_{extractor}{'_debiased' if score is DEBIASED else ''}", title=title, meaning=text)
        for extractor, network in (("dinov2", "DINOv2"), ("clip", "CLIP"), ("tokenizer", "the tokenizer's encoder"))
        for score, base, title, text in (
            (FRECHET, "fd", "", f"The Fréchet distance in the features of {network}."),
            (DEBIASED, "fd", "", f"fd_{extractor} without its bias of order 1/n, so that it compares across n."),
            (KERNEL, "kid", "", f"The kernel distance in the features of {network}."),
        )
    ),
    replace(
        FRECHET,
        name="sfid",
        meaning="sFID: the Fréchet distance in Inception's features of places, the first 7 channels of a layer of 17 x "
        "17: it sees where things are, and fid does not.",
        title="sFID",
    ),
    replace(
        DEBIASED,
        name="sfid_debiased",
        meaning="sfid without its bias of order 1/n, so that it compares across n.",
        title="sFID, debiased",
    ),
)

# The same from held-out images, where these are enough for a reference: it rewards no copy of a training image.
HELD_OUT = tuple(
    replace(
        score,
        name=score.name.removesuffix("_debiased") + "_held_out" + ("_debiased" if "_debiased" in score.name else ""),
        group="distances from held-out images",
        meaning=f"{score.name} with the held-out images, which no training saw, as reference.",
        formula=f"as {score.name}, the reference of the held-out split",
    )
    for score in DISTANCES
)


def score_names(extractor: str, distances: Mapping[str, float]) -> dict[str, float]:
    """Return the distances of an extractor under the names of the metrics file.

    In the in-domain extractor's space they are `fd`, `fd_debiased`, `fd_se`, `kid`, `kid_se`; in Inception's `fid`,
    `fid_debiased`, `fid_se`, `inception_kid`, `inception_kid_se`; in another's `fd_dinov2`, `fd_dinov2_debiased`, …
    Other names stay as they are.
    """
    if extractor == "in_domain":
        return dict(distances)
    for_fd, for_kid = ("fid", "inception_kid") if extractor == "inception" else (f"fd_{extractor}", f"kid_{extractor}")
    return {re.sub("^kid", for_kid, re.sub("^fd", for_fd, name)): value for name, value in distances.items()}
