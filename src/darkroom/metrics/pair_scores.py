"""Scores by name: images against originals and captions, CLIP and the prior, codes and latents. Loads no torch."""

from dataclasses import replace
from functools import partial

from darkroom.metrics.sample_scores import FRECHET
from darkroom.metrics.score import Score

# Pairs of an image and its reconstruction or original.
_pair = partial(Score, group="pairs", error="as psnr_se", paired=True)
_decoded = partial(_pair, group="reconstructions")
_reconstruction = partial(_decoded, higher_is_better=True)
IMAGES = (
    _pair(
        "psnr",
        "Peak signal-to-noise ratio of an image and its original, mean over images. Higher is better; low for a "
        "decoder.",
        formula="mean over images of 10 log10(255^2 / MSE) dB",
        error="standard deviation over images / sqrt(n_fake)",
        title="PSNR (dB)",
        higher_is_better=True,
    ),
    _reconstruction(
        "ssim",
        "Structural similarity of a reconstruction and its original, in small windows. 1 for equal images.",
        formula="mean over images, Gaussian window of 11 px, sigma 1.5, range 255, reflected borders",
        title="SSIM",
    ),
    _reconstruction(
        "ms_ssim",
        "Structural similarity over five scales, the coarsest a sixteenth of the image's size. 1 for equal images.",
        formula="mean over images and channels, 5 scales by means of 2 x 2 pixels, exponents 0.0448, 0.2856, "
        "0.3001, 0.2363, 0.1333, window as ssim's where it lies inside",
        title="MS-SSIM",
    ),
    _pair(
        "lpips",
        "Perceptual distance of an image from its original, in features of VGG16. Lower is better, 0 for equal images.",
        formula="mean over images of the sum over 5 levels of VGG16 of the mean over places of w (a/|a| - "
        "b/|b|)^2, v0.1",
        title="LPIPS",
        evaluator="lpips",
    ),
    _reconstruction(
        "psnr_visible",
        "psnr of an RGBA reconstruction on black and on white, with pixels weighted by the original's alpha. Higher is "
        "better.",
        formula="mean over images of 10 log10(255^2 sum a / sum a e) dB, a the original's alpha, e a pixel's squared "
        "error, mean over its colours on black and on white",
        title="PSNR of visible pixels (dB)",
    ),
    _decoded(
        "alpha_error",
        "Mean difference of the alpha of an RGBA reconstruction, 0 to 1. Lower is better.",
        formula="mean over images and pixels of |a' - a|, a from 0 to 1",
        title="error of alpha",
    ),
    _decoded(
        "alpha_edge_error",
        "The same at the edges of what is visible. Lower is better.",
        formula="as alpha_error, of pixels with an alpha below 0.5 and another from 0.5 on in their 3 x 3 pixels",
        title="error of alpha at edges",
    ),
    _decoded(
        "transparent_kept",
        "Fraction of the fully transparent pixels that the reconstruction leaves fully transparent. Higher is better.",
        formula="mean over images of the fraction of pixels of alpha 0 that are decoded with alpha 0",
        title="transparent pixels kept",
        higher_is_better=True,
    ),
    replace(
        FRECHET,
        name="rfd",
        group="reconstructions",
        meaning="Fréchet distance between the features of reconstructions and of their originals. Lower is better.",
    ),
    replace(FRECHET, name="rfid", group="reconstructions", meaning="rfd in the features of the Inception network."),
)

# Pairs of an image and its original or its caption.
_scene = partial(_pair, error="as colour_se", higher_is_better=True, evaluator="scene_reader")
PAIRS = (
    _pair(
        "clip_image",
        "Cosine of CLIP's embeddings of an image and its original, mean over images. Higher is better.",
        formula="mean over images of the cosine of CLIP's embeddings of the image and of its original",
        title="CLIP, image and original",
        higher_is_better=True,
        evaluator="clip",
    ),
    _pair(
        "clip_text",
        "Cosine of CLIP's embeddings of an image and its caption. Higher is better, up to about that of the originals.",
        formula="mean over images of the cosine of CLIP's embeddings of the image and of its caption",
        title="CLIP, image and caption",
        higher_is_better=True,
        evaluator="clip",
    ),
    _pair(
        "clip_text_real",
        "The same of the originals.",
        formula="as clip_text, of the original",
        title="CLIP, original and caption",
        compared=False,
    ),
    _scene(
        "colour",
        "Fraction of images in which the scene reader sees the colours of the caption, and no other. Higher is better.",
        formula="fraction of images in which the scene reader sees the colours that the caption names, and no other",
        error="as psnr_se, an image 1 or 0",
    ),
    *(_scene(name, f"The same for {name}s.", formula=f"as colour, of {name}s") for name in ("form", "size")),
    _scene(
        "position",
        "Fraction of images whose things are where, as many, or so to each other, as the caption says.",
        formula="fraction of images in which position, number or relation of the shapes is as captioned",
    ),
    _scene(
        "colour_and_form",
        "The fraction of images in which each thing has both the colour and the form that the caption names.",
        formula="as colour, of colour and form of each thing together",
        title="colour and form",
    ),
    _scene(
        "as_described",
        "The fraction of images of which the caption is true in all that it says.",
        formula="fraction of images of which the caption, in its canonical form, is what the scene reader sees",
        title="as described",
    ),
)

# The embeddings of a prior; these scores are in its manifest, not in a card.
_prior = partial(Score, group="prior")
PRIOR = (
    _prior(
        "cosine",
        "Cosine of the prior's embedding of a caption and that of its image, mean over images. Higher is better.",
        title="cosine, made",
    ),
    _prior(
        "cosine_text",
        "The same of the embedding of the caption itself: what a prior would have that hands it on.",
        title="cosine, of the text",
    ),
    _prior(
        "cosine_other",
        "The same of the prior's embedding and that of every other image: what knowing nothing would have.",
        title="cosine, of another image",
    ),
)

# Of CLIP's embeddings; `retrieval.py` computes them.
ERROR = "sqrt(p (1 - p) / n), n the images or captions"  # of each, a fraction p
_clip = partial(Score, group="clip", higher_is_better=True, paired=True)
RETRIEVAL = (
    _clip(
        "zero_shot_accuracy",
        "Fraction of images whose class CLIP finds among all, from captions or prompts. Higher is better.",
        formula="fraction of images whose class's prompts, mean of unit embeddings, have the largest cosine",
        title="zero-shot accuracy",
    ),
    _clip(
        "image_to_text_r1",
        "Fraction of images that CLIP finds nearest to their own caption. Higher is better, and harder with more "
        "captions.",
        formula="fraction of images with no other caption whose cosine is as large as that of their own",
        title="caption of an image, R@1",
    ),
    _clip(
        "image_to_text_r5",
        "The same where fewer than five other captions are as near.",
        formula="as image_to_text_r1, with fewer than 5 others",
        title="caption of an image, R@5",
    ),
    _clip(
        "text_to_image_r1",
        "The fraction of captions to which no image of another caption is as near as one of their own.",
        formula="fraction of captions of one of whose images no image of another caption has as large a cosine",
        title="image of a caption, R@1",
    ),
    _clip(
        "text_to_image_r5",
        "The same where fewer than five images of other captions are as near.",
        formula="as text_to_image_r1, with fewer than 5 others",
        title="image of a caption, R@5",
    ),
)

# Usage of a codebook, and the cost of a lossless code.
_code, _cost = partial(Score, group="codes of train"), partial(Score, group="cost of codes")
_CODES = (
    _code(
        "codebook_usage",
        "Fraction of the codes of the codebook that occur at least once. Higher is better.",
        formula="fraction of the K codes that occur in the train split",
        title="codebook usage",
        higher_is_better=True,
    ),
    _code(
        "codebook_perplexity",
        "2 to the entropy of a code. Higher is better, up to the size of the codebook.",
        formula="2^H, H = - sum p log2 p over the codes of the train split",
        title="codebook perplexity",
        higher_is_better=True,
    ),
    _code(
        "dead_codes",
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
    _cost(
        "bits_per_pixel",
        "What the codes of an image cost, all written with equally many bits, over its pixels.",
        formula="log2(K) codes / pixels of an image",
        title="bits per pixel",
    ),
    _cost(
        "bits_per_pixel_entropy",
        "The same, each code written with as many bits as its frequency asks for.",
        formula="H codes / pixels of an image, H of the codes of the split that is reconstructed",
        title="bits per pixel, entropy-coded",
    ),
)

# The likelihood of stored latents under a generator, or a bound of it, not of generated images.
_bits = partial(Score, group="bits per dim", error="as bits_per_dim_se", paired=True)
BITS = (
    _bits(
        "bits_per_dim",
        "Upper bound on a lossless code of latents under the generator, in bits a number of 256 levels; for codes, the "
        "exact bits of an image's codes over its pixels and channels. Lower is better; compare at the same latents.",
        formula="bits_prior + bits_steps + bits_decoder, over all timesteps, Ho et al. 2020, equation 5; for codes "
        "-sum log2 p(c_t | c_<t) / (C H W)",
        error="standard deviation over latents / sqrt(their number)",
        title="bits per dim",
    ),
    _bits(
        "bits_per_code",
        "Bits of a code given those before it. Lower is better; compare at the same codes.",
        formula="-mean over t of log2 p(c_t | c_<t, y)",
        title="bits per code",
    ),
    _bits(
        "bits_prior",
        "Of these, what the last timestep keeps of the data.",
        formula="KL(q(x_T | x_0) || N(0, I)) / (d ln 2)",
        title="prior",
    ),
    _bits(
        "bits_steps",
        "Of these, the steps from the last timestep to the second.",
        formula="sum over t > 0 of KL(q(x_t-1 | x_t, x_0) || p(x_t-1 | x_t)) / (d ln 2)",
        title="steps",
    ),
    _bits(
        "bits_decoder",
        "Of these, the first timestep.",
        formula="-log2 p(x_0 | x_1) / d, 256 levels from -1 to 1",
        title="decoder",
    ),
)
