"""The scores of generated images by name: distances, manifolds, diversity, memorisation. Loads no torch."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from darkroom.metrics.score import Score

# In the features of the in-domain extractor, then of others; only Inception's is called FID.
_distance = partial(Score, group="distances")
FRECHET, DEBIASED, KERNEL = (
    _distance(
        "fd",
        "Fréchet distance of the features of generated and reference images: compare at equal n. Lower is better.",
        formula="|m1 - m2|^2 + tr(S1 + S2 - 2 (S1^1/2 S2 S1^1/2)^1/2), unbiased covariances, float64, at "
        "n_fake samples",
        error="sqrt((B - 1) / B sum_b (fd without block b - their mean)^2)",
    ),
    _distance(
        "fd_debiased",
        "fd without its bias of order 1/n, so that it compares across n.",
        formula="B fd - (B - 1) mean(fd without block b), blocks drawn at random, classes spread",
    ),
    _distance(
        "kid",
        "Kernel distance of the features of generated and reference images. Lower is better; about 0, or below, is "
        "best.",
        formula="unbiased MMD^2 over all pairs, kernel (x.y / D + 1)^3, float64",
        error="as fd_se",
    ),
)
_NETWORKS = {
    "in_domain": "the in-domain extractor",
    "inception": "the Inception network",
    "dinov2": "DINOv2",
    "clip": "CLIP",
}


def name_in(extractor: str, name: str) -> str:
    """Return the name of a score, or of its error, in the features of an extractor: in_domain's is the plain one.

    Fréchet and kernel distance: `fid`, `inception_kid`, `fd_dinov2`, `fd_dinov2_debiased`, …; `clip`'s of a `spread` is
    `spread_clip`, its error `spread_clip_se`. sFID, the Inception Score and CMMD are of one extractor.
    """
    if extractor == "in_domain":
        return name
    first, _, rest = name.partition("_")
    inception = {"fd": "fid", "kid": "inception_kid"} if extractor == "inception" else {}
    return "_".join(filter(None, (inception.get(first, f"{first}_{extractor}"), rest)))


def in_all_features(*scores: Score) -> tuple[Score, ...]:
    """Return scores under their names in the features of each extractor."""
    return tuple(
        score
        if extractor == "in_domain"
        else replace(
            score,
            name=name_in(extractor, score.name),
            title="",
            meaning=f"{score.title or score.name} in the features of {network}.",
        )
        for extractor, network in _NETWORKS.items()
        for score in scores
    )


SPATIAL = (
    replace(
        FRECHET,
        name="sfid",
        meaning="sFID: the Fréchet distance in Inception's features of places. It sees where things are; fid does not.",
        title="sFID",
    ),
    replace(
        DEBIASED,
        name="sfid_debiased",
        meaning="sfid without its bias of order 1/n, so that it compares across n.",
        title="sFID, debiased",
    ),
)
DISTANCES = (*in_all_features(FRECHET, DEBIASED, KERNEL), *SPATIAL)

# The same from held-out images, if these are enough for a reference: copies of training images are not rewarded.
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
    """Return the distances of an extractor under the names of the metrics file: see `name_in`; others are unchanged."""
    own = ("fd", "kid")
    return {
        name_in(extractor, name) if name.partition("_")[0] in own else name: value for name, value in distances.items()
    }


_manifold = partial(Score, group="manifold", higher_is_better=True)
MANIFOLD = (
    _manifold(
        "precision",
        "Fraction of generated images that lie among the real ones. Higher is better; copies and few modes raise it.",
        formula="fraction of samples within the distance of a real image to its 3rd nearest real image",
        error="standard deviation over samples / sqrt(their number), the real images fixed",
    ),
    _manifold(
        "recall",
        "Fraction of real images that lie among the generated ones. Higher is better; lost modes lower it.",
        formula="fraction of real images within the distance of a sample to its 3rd nearest sample",
        error="standard deviation over real images / sqrt(their number), the samples fixed",
    ),
    _manifold(
        "density",
        "Real neighbourhoods that a generated image lies in, over the 5 expected: about 1 for real images. Higher is "
        "better.",
        formula="1/5 of the mean number of real images nearer to the sample than to their 5th nearest real image",
        error="standard deviation over samples / sqrt(their number), the real images fixed",
    ),
    _manifold(
        "coverage",
        "Fraction of real images with a generated image nearby. Higher is better; lost modes lower it.",
        formula="fraction of real images with a sample nearer than their 5th nearest real image",
        error="standard deviation over real images / sqrt(their number), the samples fixed",
    ),
)

SUBSETS = (
    _distance(
        "inception_kid_subsets",
        "The kernel distance as it is published: the mean over 100 random subsets of 1,000 images.",
        formula="mean over 100 subsets of 1,000 images of the unbiased MMD^2, kernel (x.y / D + 1)^3, float64",
        title="KID, subsets",
    ),
    _distance(
        "inception_kid_subsets_spread",
        "Its standard deviation over the subsets, published as ±: it follows from their size and is no standard error.",
        formula="standard deviation over the 100 subsets",
        title="KID, spread of subsets",
        compared=False,
    ),
)
INCEPTION_SCORE = (
    _distance(
        "inception_score",
        "Whether Inception sees one class in each image, and all classes evenly. Higher is better, up to 1,008.",
        formula="exp(mean over images of KL(p_i | mean p)), p = softmax of Inception's logits without bias, float64",
        error="sqrt((B - 1) / B sum_b (inception_score without block b - their mean)^2)",
        title="Inception Score",
        higher_is_better=True,
    ),
)
SPLITS = (
    _distance(
        "inception_score_splits",
        "The mean Inception Score of splits of the images, as it is published.",
        formula="mean of inception_score over splits: ten, by ADM's convention of 5,000 images each",
        error="standard deviation over the splits / root of their number",
        title="Inception Score, splits",
        higher_is_better=True,
    ),
)
CMMD = (
    _distance(
        "cmmd",
        "Maximum mean discrepancy of CLIP's embeddings of generated and reference images. Lower is better, about 0 "
        "best.",
        formula="1000 times the unbiased MMD^2 over all pairs, kernel exp(-|x - y|^2 / 200), embeddings of length 1, "
        "float64",
        error="as fd_se",
        title="CMMD",
    ),
)

FEATURE_SCORES = (*SUBSETS, *INCEPTION_SCORE, *SPLITS, *CMMD)

# Scores of one extractor, besides the distances of all.
ALONE = {"inception": ("sfid", "sfid_debiased", "inception_score"), "clip": ("cmmd",)}

# Measured by `diversity.py`.
_PAIRS = "over drawn pairs of samples of one class (of any images where one has no class), each sample in one pair"
_diversity = partial(
    Score, group="diversity", error="standard deviation over pairs / sqrt(their number)", compared=False
)
DIVERSITY = (
    _diversity(
        "diversity",
        "How different two generated images of one class are. Best where it is that of real images: below, the model "
        "repeats itself; above, images are spoiled.",
        formula=f"mean {_PAIRS}, of the sum over the extractor's layers of the mean over places of |a/|a| - b/|b||^2, "
        "|a|^2 + 0.01 times the layer's usual square in place of |a|^2",
        title="diversity in a class",
        evaluator="diversity",
    ),
    _diversity(
        "lpips_diversity",
        "The same by LPIPS, which weighs features of VGG16 as people judge images.",
        formula=f"mean {_PAIRS}, of LPIPS, v0.1",
        title="LPIPS diversity in a class",
        evaluator="lpips",
    ),
)

# Measured by `memorisation.py`.
SPACES = ("pixels", "moved", "features")  # in which images are compared
_GAP = "root of the sum of the squared jackknife errors over blocks of samples, of training and of held-out images"
_copies = partial(Score, group="memorisation", error="half the length of the 95% Wilson interval / 1.96")
_memorised = partial(Score, group="memorisation", compared=False)
MEMORISATION = (
    _copies(
        "copies_pixels",
        "Fraction of generated images with one training image far nearer than all others, in pixels. Lower is better.",
        formula="fraction of samples with d1 / d2 < 1/3, d1 and d2 Euclidean distances, of the sample or its mirror "
        "image, to the nearest training image and to the nearest one that is no near duplicate of it; at most 32 px",
        title="copies in pixels",
    ),
    _copies(
        "copies_moved",
        "The same where generated images may also be moved by up to a sixteenth of their side.",
        formula="as copies_pixels, the least over moves of up to a sixteenth of the side, among the 6 training images "
        "that are nearest so at 16 px",
        title="copies in shifted pixels",
    ),
    _copies(
        "copies_features",
        "The same in the features of the in-domain extractor.",
        formula="as copies_pixels, between features of the in-domain extractor",
        title="copies in features",
    ),
    _memorised(
        "ct_pixels",
        "C_T: whether generated images lie nearer to training images than held-out ones do, in standard deviations. "
        "Below -3: nearer, as copies do; above 3: further away.",
        formula="Mann-Whitney z of the distances to the nearest training image, samples against held-out images, ties "
        "by mean ranks, one cell",
        title="C_T in pixels",
    ),
    _memorised(
        "ct_moved",
        "The same where images may also be moved.",
        formula="as ct_pixels, distances as of copies_moved",
        title="C_T in shifted pixels",
    ),
    _memorised(
        "ct_features",
        "The same in the features of the in-domain extractor.",
        formula="as ct_pixels, between features of the in-domain extractor",
        title="C_T in features",
    ),
    _memorised(
        "fd_gap",
        "Fréchet distance from training images minus that from held-out ones. Below 0: nearer to the training images.",
        formula="fd(samples, train images drawn at random) - fd(samples, as many held-out images)",
        error=_GAP,
        title="gap of the Fréchet distance",
    ),
    _memorised(
        "kid_gap",
        "The same as kernel distance.",
        formula="kid(samples, train images drawn at random) - kid(samples, as many held-out images)",
        error=_GAP,
        title="gap of the kernel distance",
    ),
    _memorised(
        "times_seen",
        "How often the training saw each image, on average.",
        formula="images seen in the training / images of the train split",
        title="times each image was seen",
    ),
)


ENOUGH = 10  # held-out images per feature that a reference needs
_LISTED = 5  # names in a sentence


def held_out_names(distances: Mapping[str, float]) -> dict[str, float]:
    """Return distances from held-out images under their names: `fd_held_out`, `fd_held_out_se`."""
    named = {}
    for name, value in distances.items():
        first, _, rest = name.partition("_")
        named[f"{first}_held_out_{rest}".rstrip("_")] = value
    return named


def listed(names: Sequence[str]) -> str:
    """Return names for a sentence; a long list is shortened."""
    more = len(names) - _LISTED
    return f"{', '.join(names[:_LISTED])} and {more:,} more" if more > 0 else ", ".join(names)
