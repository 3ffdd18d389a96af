"""The scores of an image beside its original or its caption, by name. Loads no torch."""

from dataclasses import replace

from darkroom.metrics.distance_scores import FRECHET
from darkroom.metrics.score import Score

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
        FRECHET,
        name="rfd",
        group="reconstructions",
        meaning="Fréchet distance between the features of reconstructions and of their originals. Lower is better.",
    ),
    replace(FRECHET, name="rfid", group="reconstructions", meaning="rfd in the features of the Inception network."),
)

# Of an image and its original or its caption.
PAIRS = (
    Score(
        "clip_image",
        "pairs",
        "Cosine of CLIP's embeddings of an image and of its original, mean over images. Higher is "
        "better; beside it the mean over images and originals that do not belong together.",
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
        "better, up to about what the originals get; beside it the mean over images and captions "
        "that do not belong together.",
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
