"""What is known of the scores of samples' features beside the distances. Loads no torch."""

from collections.abc import Mapping

from darkroom.metrics.score import Samples, Score

MANIFOLD = (
    Score(
        "precision",
        "manifold",
        "Precision: the fraction of generated images that lie as near to a real image, in the extractor's features, as "
        "its third neighbour. Higher is better; few modes, or copies, have a high one.",
        formula="share of samples within the distance of a real image to its 3rd nearest real image",
        error="standard deviation over samples / sqrt(their number), the real images fixed",
        higher_is_better=True,
    ),
    Score(
        "recall",
        "manifold",
        "Recall: the fraction of real images that lie as near to a generated image as its third neighbour among the "
        "generated ones. Higher is better; lost modes lower it.",
        formula="share of real images within the distance of a sample to its 3rd nearest sample",
        error="standard deviation over real images / sqrt(their number), the samples fixed",
        higher_is_better=True,
    ),
    Score(
        "density",
        "manifold",
        "Density: in how many neighbourhoods of real images a generated image lies, over the 5 expected. About 1 for "
        "real images, and it can be above; higher is better, and one outlier among the real images counts little.",
        formula="1/5 of the mean number of real images nearer to the sample than to their 5th nearest real image",
        error="standard deviation over samples / sqrt(their number), the real images fixed",
        higher_is_better=True,
    ),
    Score(
        "coverage",
        "manifold",
        "Coverage: the fraction of real images with a generated image nearer than their fifth real neighbour. Higher "
        "is better; lost modes lower it.",
        formula="share of real images with a sample nearer than their 5th nearest real image",
        error="standard deviation over real images / sqrt(their number), the samples fixed",
        higher_is_better=True,
    ),
)

FEATURE_SCORES = (
    Score(
        "inception_kid_subsets",
        "distances",
        "The kernel distance as it is published: the mean over 100 random subsets of 1,000 images.",
        formula="mean over 100 subsets of 1,000 images of the unbiased MMD^2, kernel (x.y / D + 1)^3, float64",
        title="KID, subsets",
    ),
    Score(
        "inception_kid_subsets_spread",
        "distances",
        "Its standard deviation over the subsets, published as ±: it follows from their size and is no standard error.",
        formula="standard deviation over the 100 subsets",
        title="KID, spread of subsets",
        compared=False,
    ),
    Score(
        "inception_score",
        "distances",
        "Inception Score of all images: how surely Inception sees one class in each image, and how evenly all classes. "
        "It sees no real image. Higher is better, up to 1,008; biased by about -1/n.",
        formula="exp(mean over images of KL(p_i | mean p)), p = softmax of Inception's logits without bias, float64",
        error="sqrt((B - 1) / B sum_b (inception_score without block b - their mean)^2)",
        title="Inception Score",
        higher_is_better=True,
    ),
    Score(
        "inception_score_splits",
        "distances",
        "The mean Inception Score of splits of the images, as it is published.",
        formula="mean of inception_score over splits: ten, by ADM's convention of 5,000 images each",
        error="standard deviation over the splits / root of their number",
        title="Inception Score, splits",
        higher_is_better=True,
    ),
    Score(
        "cmmd",
        "distances",
        "CMMD: the squared maximum mean discrepancy of CLIP's embeddings of generated and reference images, with a "
        "Gaussian kernel. Lower is better; it has no bias, so it can fall below 0.",
        formula="1000 times the unbiased MMD^2 over all pairs, kernel exp(-|x - y|^2 / 200), embeddings of length 1, "
        "float64",
        error="as fd_se",
        title="CMMD",
    ),
)

# What one extractor alone has, beside the distances that all have.
ALONE = {"inception": ("sfid", "sfid_debiased", "inception_score"), "clip": ("cmmd",)}


class ManifoldMetric:
    """Precision, recall, density and coverage in the in-domain extractor's features."""

    scores = MANIFOLD

    def measure(self, samples: Samples) -> Mapping[str, float]:
        """Return the four with their errors; nothing without real images, or with fewer than 6 of either."""
        from darkroom.metrics.manifold import LEAST, manifold

        if samples.real is None or min(len(samples.real), samples.count) < LEAST:
            return {}
        return manifold(samples.features, samples.real, weights=samples.real_weights)
