"""What the scores are called, what they mean, and the rows of their table."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from darkroom.metrics.names import score_names
from darkroom.report.numbers import Number, number

_USE = {
    "codebook_usage": "Share of the codes of the codebook that occur at least once. Higher is better.",
    "codebook_perplexity": "As many equally frequent codes would tell as much, 2 to the entropy of a code. Higher is "
    "better, up to the size of the codebook.",
    "dead_codes": "Codes that never occur.",
}
_CODES = {
    **_USE,
    **{f"{name}_scored": text for name, text in _USE.items()},
    "bits_per_pixel": "What the codes of an image cost, all written with equally many bits, over its pixels.",
    "bits_per_pixel_entropy": "The same, each code written with as many bits as its frequency asks for.",
}

_CLIP = {
    "zero_shot_accuracy": "The share of images whose class CLIP finds among all classes, each told by its captions or "
    "prompts. Higher is better.",
    "image_to_text_r1": "The share of images that CLIP finds nearer to their own caption than to any other of the "
    "split's. Higher is better; as many captions as differ are compared.",
    "image_to_text_r5": "The same where fewer than five other captions are as near.",
    "text_to_image_r1": "The share of captions to which no image of another caption is as near as one of their own.",
    "text_to_image_r5": "The same where fewer than five images of other captions are as near.",
}

_PAIRS = {
    "clip_image": "Cosine of CLIP's embeddings of an image and of its original, mean over images. Higher is better; "
    "beside it what an image and the next original get.",
    "clip_text": "Cosine of CLIP's embeddings of an image and of its caption, mean over images. Higher is better, up "
    "to about what the originals get; beside it what an image and the next caption get.",
    "clip_text_real": "The same of the originals.",
    "colour": "The share of images in which the scene reader sees the colours that the caption names, and no other. "
    "Higher is better; its own mistakes bound it, so beside it stands the same share of real images.",
    "form": "The same of forms.",
    "size": "The same of sizes.",
    "position": "The share of images whose thing is where the caption says, or whose things are as many as it says, or "
    "so to each other.",
    "colour_and_form": "The share of images in which each thing has both the colour and the form that the caption "
    "names.",
    "as_described": "The share of images of which the caption is true in all that it says.",
}
_PRIOR = {
    "cosine": "Cosine of an embedding that the prior makes of a caption and that of the image with this caption, mean "
    "over images. Higher is better.",
    "cosine_text": "The same of the embedding of the caption itself: what a prior would have that hands it on.",
    "cosine_other": "The same of the prior's embedding and that of every other image: what knowing nothing would have.",
}

# The scores of a codebook: in the train split, in the split that is reconstructed, and what the codes cost.
USE, USE_SCORED = tuple(_USE), tuple(f"{name}_scored" for name in _USE)
RATES = ("bits_per_pixel", "bits_per_pixel_entropy")
OF_CODES = tuple(_CODES)
OF_CLIP = tuple(_CLIP)
OF_PRIOR = tuple(_PRIOR)
# Of an image and its original, or its caption; the last ones by the scene reader.
OF_PAIRS = ("psnr", "lpips", *_PAIRS)
OF_SCENES = ("colour", "form", "size", "position", "colour_and_form", "as_described")

# One line each. A score that is not here does not get onto the page unexplained.
MEANING = {
    "fd": "Fréchet distance: how far mean and covariance of the generated images' features lie from those of the "
    "reference images. Lower is better; its bias shrinks with n, so it compares at equal n only.",
    "fd_debiased": "fd without its bias of order 1/n, so that it compares across n.",
    "kid": "Kernel distance: the squared maximum mean discrepancy between the features of generated and reference "
    "images, with a cubic kernel. Lower is better; it has no bias, so it can fall below 0.",
    "fid": "The Fréchet distance in the features of the Inception network. No other network's is called FID.",
    "fid_debiased": "fid without its bias of order 1/n, so that it compares across n.",
    "inception_kid": "The kernel distance in the features of the Inception network.",
    "label_accuracy": "Label accuracy: the share of generated images whose most likely class, for a classifier trained "
    "on real images, is the class that was asked for. Higher is better.",
    "confident": "The share of generated images whose most likely class, for the same classifier, has a probability of "
    "at least 0.9: images that it knows. Higher is better.",
    "rarest_class": "The share of generated images that are taken for the rarest class: near 0 where a class is never "
    "made, at most one by the number of classes.",
    "psnr": "Peak signal-to-noise ratio of an image and its original, 10 log10(255² / mean squared error) in dB, mean "
    "over images. Higher is better; an embedding does not hold the pixels, so of a decoder it is low.",
    "ssim": "Structural similarity of a reconstruction and its original: brightness, contrast and structure in small "
    "windows, mean over images. 1 for equal images.",
    "ms_ssim": "Structural similarity over five scales, the coarsest a sixteenth of the image's size. 1 for equal "
    "images.",
    "lpips": "Perceptual distance of an image from its original: between their features in VGG16, weighted as "
    "people judge images. 0 for equal images; lower is better.",
    "rfd": "Fréchet distance between the features of reconstructions and of their originals. Lower is better.",
    "rfid": "rfd in the features of the Inception network.",
    **_CODES,
    **_CLIP,
    **_PAIRS,
    **_PRIOR,
}
TITLES = {
    "label_accuracy": "label accuracy",
    "confident": "confident share",
    "rarest_class": "rarest class",
    "psnr": "PSNR (dB)",
    "ssim": "SSIM",
    "ms_ssim": "MS-SSIM",
    "lpips": "LPIPS",
    **{name: name.removesuffix("_scored").replace("_", " ") for name in _CODES},
    "zero_shot_accuracy": "zero-shot accuracy",
    "image_to_text_r1": "caption of an image, R@1",
    "image_to_text_r5": "caption of an image, R@5",
    "text_to_image_r1": "image of a caption, R@1",
    "text_to_image_r5": "image of a caption, R@5",
    "clip_image": "CLIP, image and original",
    "clip_text": "CLIP, image and caption",
    "clip_text_real": "CLIP, original and caption",
    "colour_and_form": "colour and form",
    "as_described": "as described",
    "cosine": "cosine, made",
    "cosine_text": "cosine, of the text",
    "cosine_other": "cosine, of another image",
    "bits_per_pixel": "bits per pixel",
    "bits_per_pixel_entropy": "bits per pixel, entropy-coded",
}
DEBIASED = {"in_domain": "fd_debiased", "inception": "fid_debiased"}
DISTANCES = {"in_domain": "Fréchet distance", "inception": "FID"}
OF_CLASSES = ("label_accuracy", "confident", "rarest_class")
COUNT = "n"


@dataclass(frozen=True)
class Row:
    """A score of this run and, where there is a noise floor, what real images score: unseen ones, and two halves."""

    name: str
    run: Number
    unseen: Number | None = None
    halves: Number | None = None

    @property
    def title(self) -> str:
        """What stands in the table."""
        return TITLES.get(self.name, self.name)

    @property
    def cells(self) -> tuple[Number | None, ...]:
        """The numbers from left to right."""
        return self.run, self.unseen, self.halves


def error_of(name: str) -> str:
    """Return the name of a score's standard error: one for a distance with its bias and without."""
    return f"{name.removesuffix('_debiased')}_se"


def unknown(scores: Mapping[str, float]) -> list[str]:
    """Return the names in a metrics file that the page cannot explain: neither scores, nor errors of scores, nor n."""
    errors = {error_of(name) for name in scores if name in MEANING}
    return sorted(name for name in scores if name not in MEANING and name not in errors and name != COUNT)


def value_of(name: str, scores: Mapping[str, float] | None) -> Number | None:
    """Return a score with its error, where it was given."""
    if scores is None or name not in scores:
        return None
    return number(scores[name], scores.get(error_of(name)))


def rows(scores: Mapping[str, float], names: Collection[str]) -> list[Row]:
    """Return rows without a noise floor, in the order of `MEANING`."""
    return [Row(name, found) for name in MEANING if name in names and (found := value_of(name, scores))]


def distance_rows(
    extractor: str, scores: Mapping[str, float], unseen: Mapping[str, float], halves: Mapping[str, float]
) -> list[Row]:
    """Return the rows of one extractor's distances, beside them its noise floor.

    Args:
        extractor: in_domain or inception.
        scores: of the run, under the names of its metrics file.
        unseen: of unseen real images, under the names that every extractor's distances have: fd, fd_se, kid, …
        halves: of two halves of the reference, under the same names.
    """
    floor = score_names(extractor, unseen), score_names(extractor, halves)
    return [
        Row(name, found, value_of(name, floor[0]), value_of(name, floor[1]))
        for name in MEANING
        if name in floor[0] and (found := value_of(name, scores))
    ]
