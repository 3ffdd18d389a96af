"""Every score by its name: its formula, its meaning, its unit, and which way is better. Loads no torch.

A new metric of generated images is a file beside this one with a class (`SampleMetric`) and its name in
`SAMPLE_METRICS`: stages measure it, and cards, `darkroom scores`, `darkroom compare` and the page know it from here.
"""

import re
from collections.abc import Mapping
from dataclasses import replace

from darkroom.metrics.copies_scores import MEMORISATION
from darkroom.metrics.feature_scores import FEATURE_SCORES, ManifoldMetric
from darkroom.metrics.labels import ClassMetric
from darkroom.metrics.retrieval_scores import RETRIEVAL
from darkroom.metrics.score import SampleMetric, Score

COUNT = "n"  # of images, in a metrics file

# In the in-domain extractor's space, and then in Inception's: FID is Inception's, and nobody else's.
_FRECHET, _DEBIASED, _KERNEL = (
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
        formula="B fd - (B - 1) mean(fd without block b), contiguous blocks",
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
    _FRECHET,
    _DEBIASED,
    _KERNEL,
    replace(
        _FRECHET,
        name="fid",
        meaning="The Fréchet distance in the features of the Inception network. No other network's is called FID.",
    ),
    replace(_DEBIASED, name="fid_debiased", meaning="fid without its bias of order 1/n, so that it compares across n."),
    replace(_KERNEL, name="inception_kid", meaning="The kernel distance in the features of the Inception network."),
    *(
        replace(score, name=f"{base}_{extractor}{'_debiased' if score is _DEBIASED else ''}", title=title, meaning=text)
        for extractor, network in (("dinov2", "DINOv2"), ("clip", "CLIP"), ("tokenizer", "the tokenizer's encoder"))
        for score, base, title, text in (
            (_FRECHET, "fd", "", f"The Fréchet distance in the features of {network}."),
            (_DEBIASED, "fd", "", f"fd_{extractor} without its bias of order 1/n, so that it compares across n."),
            (_KERNEL, "kid", "", f"The kernel distance in the features of {network}."),
        )
    ),
    replace(
        _FRECHET,
        name="sfid",
        meaning="sFID: the Fréchet distance in Inception's features of places, the first 7 channels of a layer of 17 x "
        "17: it sees where things are, and fid does not.",
        title="sFID",
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

# The variational bound of stored latents under a generator, not of generated images.
BITS = (
    Score(
        "bits_per_dim",
        "bits per dim",
        "Upper bound on what a lossless code of latents takes under the generator, bits a number, with 256 levels of "
        "them from -1 to 1: comparable between generators of the same latents. Lower is better.",
        formula="bits_prior + bits_steps + bits_decoder, over all timesteps, Ho et al. 2020, equation 5",
        error="standard deviation over latents / sqrt(their number)",
        title="bits per dim",
        paired=True,
    ),
    Score(
        "bits_prior",
        "bits per dim",
        "Of these, what the last timestep keeps of the data.",
        formula="KL(q(x_T | x_0) || N(0, I)) / (d ln 2)",
        error="as bits_per_dim_se",
        title="prior",
        paired=True,
    ),
    Score(
        "bits_steps",
        "bits per dim",
        "Of these, the steps from the last timestep to the second.",
        formula="sum over t > 0 of KL(q(x_t-1 | x_t, x_0) || p(x_t-1 | x_t)) / (d ln 2)",
        error="as bits_per_dim_se",
        title="steps",
        paired=True,
    ),
    Score(
        "bits_decoder",
        "bits per dim",
        "Of these, the first timestep.",
        formula="-log2 p(x_0 | x_1) / d, 256 levels from -1 to 1",
        error="as bits_per_dim_se",
        title="decoder",
        paired=True,
    ),
)

# The metrics of all generated images, beside the distances.
SAMPLE_METRICS: tuple[SampleMetric, ...] = (
    ManifoldMetric(),
    ClassMetric(),
)

# Of an image and its reconstruction or original.
IMAGES = (
    Score(
        "psnr",
        "pairs",
        "Peak signal-to-noise ratio of an image and its original, 10 log10(255² / mean squared error) "
        "in dB, mean over images. Higher is better; an embedding does not hold the pixels, so of a "
        "decoder it is low.",
        formula="mean over images of 10 log10(255^2 / MSE) dB",
        error="standard deviation over images / sqrt(n_fake)",
        title="PSNR (dB)",
        higher_is_better=True,
        paired=True,
    ),
    Score(
        "ssim",
        "reconstructions",
        "Structural similarity of a reconstruction and its original: brightness, contrast and "
        "structure in small windows, mean over images. 1 for equal images.",
        formula="mean over images, Gaussian window of 11 px, sigma 1.5, range 255, reflected borders",
        error="as psnr_se",
        title="SSIM",
        higher_is_better=True,
        paired=True,
    ),
    Score(
        "ms_ssim",
        "reconstructions",
        "Structural similarity over five scales, the coarsest a sixteenth of the image's size. 1 for equal images.",
        formula="mean over images and channels, 5 scales by means of 2 x 2 pixels, exponents 0.0448, 0.2856, "
        "0.3001, 0.2363, 0.1333, window as ssim's where it lies inside",
        error="as psnr_se",
        title="MS-SSIM",
        higher_is_better=True,
        paired=True,
    ),
    Score(
        "lpips",
        "pairs",
        "Perceptual distance of an image from its original: between their features in VGG16, weighted "
        "as people judge images. 0 for equal images; lower is better.",
        formula="mean over images of the sum over 5 levels of VGG16 of the mean over places of w (a/|a| - "
        "b/|b|)^2, v0.1",
        error="as psnr_se",
        title="LPIPS",
        paired=True,
        evaluator="lpips",
    ),
    replace(
        _FRECHET,
        name="rfd",
        group="reconstructions",
        meaning="Fréchet distance between the features of reconstructions and of their originals. Lower is better.",
    ),
    replace(_FRECHET, name="rfid", group="reconstructions", meaning="rfd in the features of the Inception network."),
)

_CODES = (
    Score(
        "codebook_usage",
        "codes of train",
        "Fraction of the codes of the codebook that occur at least once. Higher is better.",
        formula="share of the K codes that occur in the train split",
        title="codebook usage",
        higher_is_better=True,
    ),
    Score(
        "codebook_perplexity",
        "codes of train",
        "As many equally frequent codes would hold as much information, 2 to the entropy of a code. Higher is "
        "better, up to the size of the codebook.",
        formula="2^H, H = - sum p log2 p over the codes of the train split",
        title="codebook perplexity",
        higher_is_better=True,
    ),
    Score(
        "dead_codes",
        "codes of train",
        "Codes that never occur.",
        formula="codes that do not occur in the train split",
        title="dead codes",
    ),
)
CODES = (
    *_CODES,
    *(
        replace(
            score,
            name=f"{score.name}_scored",
            group="codes scored",
            formula=f"as {score.name}, in the split that is reconstructed",
        )
        for score in _CODES
    ),
    Score(
        "bits_per_pixel",
        "cost of codes",
        "What the codes of an image cost, all written with equally many bits, over its pixels.",
        formula="log2(K) codes / pixels of an image",
        title="bits per pixel",
    ),
    Score(
        "bits_per_pixel_entropy",
        "cost of codes",
        "The same, each code written with as many bits as its frequency asks for.",
        formula="H codes / pixels of an image, H of the codes of the split that is reconstructed",
        title="bits per pixel, entropy-coded",
    ),
)

# Of an image and its original or its caption.
PAIRS = (
    Score(
        "clip_image",
        "pairs",
        "Cosine of CLIP's embeddings of an image and of its original, mean over images. Higher is "
        "better; beside it what an image and the next original get.",
        formula="mean over images of the cosine of CLIP's embeddings of the image and of its original",
        error="as psnr_se",
        title="CLIP, image and original",
        higher_is_better=True,
        paired=True,
        evaluator="clip",
    ),
    Score(
        "clip_text",
        "pairs",
        "Cosine of CLIP's embeddings of an image and of its caption, mean over images. Higher is "
        "better, up to about what the originals get; beside it what an image and the next caption "
        "get.",
        formula="mean over images of the cosine of CLIP's embeddings of the image and of its caption",
        error="as psnr_se",
        title="CLIP, image and caption",
        higher_is_better=True,
        paired=True,
        evaluator="clip",
    ),
    Score(
        "clip_text_real",
        "pairs",
        "The same of the originals.",
        formula="as clip_text, of the original",
        error="as psnr_se",
        title="CLIP, original and caption",
        paired=True,
        compared=False,
    ),
    Score(
        "colour",
        "pairs",
        "The fraction of images in which the scene reader sees the colours that the caption names, and "
        "no other. Higher is better; its own mistakes bound it, so beside it stands the same fraction of "
        "real images.",
        formula="share of images in which the scene reader sees the colours that the caption names, and no other",
        error="as psnr_se, an image 1 or 0",
        higher_is_better=True,
        paired=True,
        evaluator="scene_reader",
    ),
    Score(
        "form",
        "pairs",
        "The same of forms.",
        formula="as colour, of forms",
        error="as colour_se",
        higher_is_better=True,
        paired=True,
        evaluator="scene_reader",
    ),
    Score(
        "size",
        "pairs",
        "The same of sizes.",
        formula="as colour, of sizes",
        error="as colour_se",
        higher_is_better=True,
        paired=True,
        evaluator="scene_reader",
    ),
    Score(
        "position",
        "pairs",
        "The fraction of images whose thing is where the caption says, or whose things are as many as it "
        "says, or so to each other.",
        formula="share of images whose thing is where, or whose things are as many or so to each other, as captioned",
        error="as colour_se",
        higher_is_better=True,
        paired=True,
        evaluator="scene_reader",
    ),
    Score(
        "colour_and_form",
        "pairs",
        "The fraction of images in which each thing has both the colour and the form that the caption names.",
        formula="as colour, of colour and form of each thing together",
        error="as colour_se",
        title="colour and form",
        higher_is_better=True,
        paired=True,
        evaluator="scene_reader",
    ),
    Score(
        "as_described",
        "pairs",
        "The fraction of images of which the caption is true in all that it says.",
        formula="share of images of which the caption, in its canonical form, is what the scene reader sees",
        error="as colour_se",
        title="as described",
        higher_is_better=True,
        paired=True,
        evaluator="scene_reader",
    ),
)

# Of the embeddings that a prior makes; they stand in its manifest, and in no card.
PRIOR = (
    Score(
        "cosine",
        "prior",
        "Cosine of an embedding that the prior makes of a caption and that of the image with this "
        "caption, mean over images. Higher is better.",
        title="cosine, made",
    ),
    Score(
        "cosine_text",
        "prior",
        "The same of the embedding of the caption itself: what a prior would have that hands it on.",
        title="cosine, of the text",
    ),
    Score(
        "cosine_other",
        "prior",
        "The same of the prior's embedding and that of every other image: what knowing nothing would have.",
        title="cosine, of another image",
    ),
)


def scores() -> dict[str, Score]:
    """Return all scores by name, in the order of the tables."""
    measured = [score for metric in SAMPLE_METRICS for score in metric.scores]
    found = (
        *(*DISTANCES, *HELD_OUT, *FEATURE_SCORES, *measured, *MEMORISATION, *BITS),
        *(*IMAGES, *CODES, *RETRIEVAL, *PAIRS, *PRIOR),
    )
    return {score.name: score for score in found}


def of_group(*groups: str) -> tuple[str, ...]:
    """Return the names of the scores of some groups, in the order of the tables."""
    return tuple(name for name, score in scores().items() if score.group in groups)


def formulas(names: Mapping[str, float]) -> dict[str, str]:
    """Return the formula of each score and standard error of a metrics file, by its name; a count has none."""
    known, found = scores(), {}
    for name in names:
        score = known.get(name.removesuffix("_se"))
        text = "" if score is None else score.error if name.endswith("_se") else score.formula
        if text:
            found[name] = text
    return found


def score_names(extractor: str, distances: Mapping[str, float]) -> dict[str, float]:
    """Return the distances of an extractor under the names of the metrics file.

    In the in-domain extractor's space they are `fd`, `fd_debiased`, `fd_se`, `kid`, `kid_se`; in Inception's `fid`,
    `fid_debiased`, `fid_se`, `inception_kid`, `inception_kid_se`; in another's `fd_dinov2`, `fd_dinov2_debiased`, …
    """
    if extractor == "in_domain":
        return dict(distances)
    if extractor == "inception":
        return {
            f"fid{name.removeprefix('fd')}" if name.startswith("fd") else f"inception_{name}": value
            for name, value in distances.items()
        }
    return {re.sub("^(fd|kid)", rf"\1_{extractor}", name): value for name, value in distances.items()}
