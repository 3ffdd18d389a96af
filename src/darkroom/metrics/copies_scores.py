"""The scores of memorisation by name: what `copies.py` measures. Loads no torch."""

from darkroom.metrics.score import Score

SPACES = ("pixels", "moved", "features")  # in which images are compared
_SHARE = "half the length of the 95% Wilson interval / 1.96"
_GAP = "root of the sum of the squared jackknife errors over blocks of samples, of training and of held-out images"

MEMORISATION = (
    Score(
        "copies_pixels",
        "memorisation",
        "The fraction of generated images whose nearest training image is more than three times as near as the "
        "second nearest, in pixels or mirrored. Lower is better; beside it what held-out real images get.",
        formula="share of samples with d1 / d2 < 1/3, d1 and d2 the Euclidean distances, of the sample or its mirror "
        "image, to the nearest training image and to the nearest one that is no near duplicate of it; at most 32 px",
        error=_SHARE,
        title="copies, in pixels",
    ),
    Score(
        "copies_moved",
        "memorisation",
        "The same where generated images may also be moved by up to a sixteenth of their side, borders left out.",
        formula="as copies_pixels, the least over moves of up to a sixteenth of the side, among the 6 training images "
        "that are nearest so at 16 px",
        error=_SHARE,
        title="copies, in pixels, moved",
    ),
    Score(
        "copies_features",
        "memorisation",
        "The same in the features of the in-domain extractor.",
        formula="as copies_pixels, between features of the in-domain extractor",
        error=_SHARE,
        title="copies, in features",
    ),
    Score(
        "ct_pixels",
        "memorisation",
        "C_T: whether generated images lie nearer to training images than held-out real ones do, in pixels, in "
        "standard deviations of chance. Near 0: as real images; below -3: nearer, as copies do; above 3: further away.",
        formula="Mann-Whitney z of the distances to the nearest training image, samples against held-out images, ties "
        "by mean ranks, one cell",
        title="C_T, in pixels",
        compared=False,
    ),
    Score(
        "ct_moved",
        "memorisation",
        "The same where images may also be moved.",
        formula="as ct_pixels, distances as of copies_moved",
        title="C_T, in pixels, moved",
        compared=False,
    ),
    Score(
        "ct_features",
        "memorisation",
        "The same in the features of the in-domain extractor.",
        formula="as ct_pixels, between features of the in-domain extractor",
        title="C_T, in features",
        compared=False,
    ),
    Score(
        "fd_gap",
        "memorisation",
        "How much nearer generated images lie to training images than to as many held-out ones, as Fréchet distance. "
        "Near 0: equally near; below 0: nearer to what was trained on.",
        formula="fd(samples, train images drawn at random) - fd(samples, as many held-out images)",
        error=_GAP,
        title="gap of the Fréchet distance",
        compared=False,
    ),
    Score(
        "kid_gap",
        "memorisation",
        "The same as kernel distance.",
        formula="kid(samples, train images drawn at random) - kid(samples, as many held-out images)",
        error=_GAP,
        title="gap of the kernel distance",
        compared=False,
    ),
    Score(
        "times_seen",
        "memorisation",
        "How often the training saw each image, on average.",
        formula="images seen in the training / images of the train split",
        title="times each image was seen",
        compared=False,
    ),
)
