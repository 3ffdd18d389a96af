"""The card of a score: its protocol. A number without it is not a result.

A card holds what the number follows from, and nothing of clock, host, path, device or git, so equal work gives equal
bytes. Two scores compare where their cards differ in nothing but what is studied.
"""

from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any

LIBRARIES = ("numpy", "torch", "torch-fidelity", "torchmetrics")

RESIZE = {
    "in_domain": "none",
    "inception": "TensorFlow 1 bilinear to 299 px, align_corners=False, no half-pixel centres, no antialias",
}

QUANTISATION = "uint8, round((x + 1) 127.5) clamped to 0..255, x the output in [-1, 1]"

FORMULAS = {
    "fd": "|m1 - m2|^2 + tr(S1 + S2 - 2 (S1^1/2 S2 S1^1/2)^1/2), unbiased covariances, float64, at n_fake samples",
    "fd_debiased": "B fd - (B - 1) mean(fd without block b), contiguous blocks",
    "fd_se": "sqrt((B - 1) / B sum_b (fd without block b - their mean)^2)",
    "kid": "unbiased MMD^2 over all pairs, kernel (x.y / D + 1)^3, float64",
    "kid_se": "as fd_se",
    "psnr": "mean over images of 10 log10(255^2 / MSE) dB",
    "psnr_se": "standard deviation over images / sqrt(n_fake)",
    "ssim": "mean over images, Gaussian window of 11 px, sigma 1.5, range 255, reflected borders",
    "ssim_se": "as psnr_se",
    "ms_ssim": "mean over images and channels, 5 scales by means of 2 x 2 pixels, exponents 0.0448, 0.2856, 0.3001, "
    "0.2363, 0.1333, window as ssim's where it lies inside",
    "ms_ssim_se": "as psnr_se",
    "lpips": "mean over images of the sum over 5 levels of VGG16 of the mean over places of w (a/|a| - b/|b|)^2, v0.1",
    "lpips_se": "as psnr_se",
    "codebook_usage": "share of the K codes that occur in the train split",
    "codebook_perplexity": "2^H, H = - sum p log2 p over the codes of the train split",
    "dead_codes": "codes that do not occur in the train split",
    "codebook_usage_scored": "as codebook_usage, in the split that is reconstructed",
    "codebook_perplexity_scored": "as codebook_perplexity, in the split that is reconstructed",
    "dead_codes_scored": "as dead_codes, in the split that is reconstructed",
    "bits_per_pixel": "log2(K) codes / pixels of an image",
    "bits_per_pixel_entropy": "H codes / pixels of an image, H of the codes of the split that is reconstructed",
    "clip_image": "mean over images of the cosine of CLIP's embeddings of the image and of its original",
    "clip_image_se": "as psnr_se",
    "clip_text": "mean over images of the cosine of CLIP's embeddings of the image and of its caption",
    "clip_text_se": "as psnr_se",
    "clip_text_real": "as clip_text, of the original",
    "clip_text_real_se": "as psnr_se",
    "colour": "share of images in which the scene reader sees the colours that the caption names, and no other",
    "colour_se": "as psnr_se, an image 1 or 0",
    "form": "as colour, of forms",
    "form_se": "as colour_se",
    "size": "as colour, of sizes",
    "size_se": "as colour_se",
    "position": "share of images whose thing is where, or whose things are as many or so to each other, as captioned",
    "position_se": "as colour_se",
    "colour_and_form": "as colour, of colour and form of each thing together",
    "colour_and_form_se": "as colour_se",
    "as_described": "share of images of which the caption, in its canonical form, is what the scene reader sees",
    "as_described_se": "as colour_se",
    "label_accuracy": "share of samples whose most likely class in the in-domain extractor is the class asked for",
    "confident": "share of samples whose most likely class in the in-domain extractor has a probability of 0.9 or more",
    "rarest_class": "share of samples that the in-domain extractor takes for the class it takes the fewest for",
}


def library_versions() -> dict[str, str]:
    """Return the versions of what computes scores. The build behind a `+` (cpu, cu130) names a device: left out."""
    return {name: version(name).partition("+")[0] for name in LIBRARIES}


def score_card(
    *,
    scores: Mapping[str, float],
    extractors: Mapping[str, Mapping[str, Any]],
    reference_id: str,
    reference_split: str,
    n_fake: int,
    blocks: int | None = None,
    seed: int | None = None,
    sampler: Mapping[str, Any] | None = None,
    samples: str | None = None,
    quantisation: str = QUANTISATION,
    lpips: str | None = None,
    more_notes: Sequence[str] = (),
    more: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the card of `scores`, as JSON values.

    Args:
        scores: what was written to the metrics file; formulas are given for the names found here (a name may have the
            prefix or letter of its extractor or use: `rfd` and `fid` are `fd`).
        extractors: name → `sha256` (of the weights), `dim`, `n` (real images in the reference), `kid_n` (of them, those
            that the kernel distance sees).
        reference_id: hash of the reference's manifest.
        reference_split: split of the real images.
        n_fake: number of images scored.
        blocks: of the jackknife.
        seed: of the samples.
        sampler: solver, steps, guidance, weights, …
        samples: hash of the samples' manifest, which names the model.
        quantisation: how network output became uint8.
        lpips: hash of the weights of LPIPS's network, where it was measured.
        more_notes: what else must be known of the scores.
        more: further facts, JSON values, under names of their own.
    """
    used = {name: FORMULAS[base] for name in scores if (base := _base(name)) in FORMULAS}
    notes = [
        f"{name}: {n_fake} samples are fewer than twice its {facts['dim']} features; "
        "the Fréchet distance is dominated by its bias, compare at equal n_fake only"
        for name, facts in sorted(extractors.items())
        if n_fake < 2 * int(facts["dim"])
    ]
    return {
        "extractors": {name: {**facts, "resize": RESIZE[name]} for name, facts in extractors.items()},
        "quantisation": quantisation,
        "reference": {"id": reference_id, "split": reference_split},
        "n_fake": n_fake,
        "blocks": blocks,
        "seed": seed,
        "samples": samples,
        "sampler": dict(sampler) if sampler is not None else None,
        "libraries": library_versions(),
        "formulas": used,
        "notes": [*notes, *more_notes],
        **({"lpips": lpips} if lpips else {}),
        **(more or {}),
    }


def _base(name: str) -> str:
    """Return the formula's name behind a score's: `rfd` and `fid_se` are `fd` and `fd_se`."""
    if name in FORMULAS:
        return name
    stem = name.removeprefix("r")
    if stem == "fid" or stem.startswith("fid_"):
        return "fd" + stem[3:]
    for prefix in ("inception_", "in_domain_"):
        stem = stem.removeprefix(prefix)
    return stem
