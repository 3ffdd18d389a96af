"""The card of a score: its protocol. A number without it is not a result.

A card holds what the number follows from, and nothing of clock, host, path, device or git, so equal work gives equal
bytes. Two scores compare where their cards differ in nothing but what is studied.
"""

from collections.abc import Mapping
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
        "notes": notes,
    }


def _base(name: str) -> str:
    """Return the formula's name behind a score's: `rfd` and `fid_se` are `fd` and `fd_se`."""
    stem = name.removeprefix("r")
    if stem == "fid" or stem.startswith("fid_"):
        return "fd" + stem[3:]
    for prefix in ("inception_", "in_domain_"):
        stem = stem.removeprefix(prefix)
    return stem
