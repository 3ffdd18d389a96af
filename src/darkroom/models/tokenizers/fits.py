"""Whether the tokenizer and what reads it fit the data and each other."""

from typing import Any

from darkroom.models.kinds import TOKENIZERS
from darkroom.models.tokenizers.sections import SMALLEST
from darkroom.params.fits import refuse, require_dropout

SSIM_WINDOW = 11  # pixels


def fits(params: Any) -> None:
    """Check the sections of the tokenizer, its teacher, its latents, its own images and its scores.

    Args:
        params: the whole of params.yaml, validated.

    Raises:
        DarkroomError: one does not fit; names its key.
    """
    tokenizer, size = params.train_tokenizer, params.ingest.image_size
    kind = tokenizer.chosen
    if params.encode_latents.latents == "codes" and not kind.discrete:
        refuse(
            f"`encode_latents.latents` is codes, and the tokenizer `{tokenizer.kind}` has none: set it to continuous, "
            "or choose a discrete kind."
        )
    if size % kind.factor:
        refuse(
            f"`ingest.image_size` is {size}, and one position of the latent of the tokenizer `{tokenizer.kind}` stands "
            f"for {kind.factor} x {kind.factor} pixels: make it a multiple of {kind.factor}."
        )
    if size < SSIM_WINDOW:
        refuse(f"`ingest.image_size` is {size}, and SSIM needs at least {SSIM_WINDOW} pixels.")
    require_lpips(params, "score_tokenizer")
    if getattr(kind, "classes", False):
        source, guidance = f"train_tokenizer.{tokenizer.kind}.label_dropout", params.sample_tokenizer.guidance
        require_dropout("sample_tokenizer.guidance", guidance, source, kind.label_dropout)
    if tokenizer.evaluate.every:
        _require_own_images(tokenizer)
    _losses_fit(params)
    channels = len(params.ingest.channels)
    if reason := kind.unfit((channels, size, size), tokenizer.own_training.batch):
        refuse(f"`train_tokenizer.{tokenizer.kind}`: {reason}.")
    _scales_fit(params)


def _require_own_images(tokenizer: Any) -> None:
    """Check that a tokenizer draws the images that are to be scored while it trains."""
    kind, every = tokenizer.chosen, f"`train_tokenizer.evaluate.every` is {tokenizer.evaluate.every}"
    generate = [name for name in TOKENIZERS if TOKENIZERS.has("sample", name)]
    if tokenizer.kind not in generate:
        refuse(
            f"{every}, and `train_tokenizer.kind` is {tokenizer.kind}, which draws no images: set the former "
            f"to 0, or the latter to {' or '.join(generate)}."
        )
    if tokenizer.untrained:
        refuse(f"{every}, and {tokenizer.untrained}, so it has no effect: set the former to 0.")
    if getattr(kind, "classes", False):
        key = f"train_tokenizer.{tokenizer.kind}."
        require_dropout(f"{key}sampling.guidance", kind.sampling.guidance, f"{key}label_dropout", kind.label_dropout)


def require_lpips(params: Any, section: str) -> None:
    """Check that images are large enough for LPIPS, where a stage that scores measures it."""
    size, smallest = params.ingest.image_size, SMALLEST["lpips"]
    if getattr(params, section).lpips == "lpips" and size < smallest:
        refuse(
            f"`{section}.lpips` needs images of {smallest} pixels at least, and `ingest.image_size` is {size}: set "
            "it to none."
        )


def _losses_fit(params: Any) -> None:
    """Check that images are large enough for the networks of the tokenizer's losses."""
    tokenizer, size = params.train_tokenizer, params.ingest.image_size
    for key in ("perceptual", "adversarial"):
        loss = getattr(tokenizer.chosen, key, None)
        if loss is not None and loss.active and size < loss.smallest:
            refuse(
                f"`ingest.image_size` is {size}, and `train_tokenizer.{tokenizer.kind}.{key}` needs images of "
                f"{loss.smallest} pixels a side at least: take larger ones, "
                + ("or the network `teacher`." if key == "perceptual" else "or fewer levels in its `channels`.")
            )
    levels = len(params.train_teacher.model.channels)
    taught = tokenizer.perceptual is not None and tokenizer.perceptual.network == "teacher"
    if taught and size < (smallest := 2 ** (levels - 1)):
        refuse(
            f"`ingest.image_size` is {size}, and `train_teacher.model.channels` has {levels} levels, which need "
            f"{smallest} pixels a side at least: take larger images or fewer levels."
        )


def _scales_fit(params: Any) -> None:
    """Check that the networks of the losses take the smallest scaled images, and the training images of many sizes."""
    tokenizer, size = params.train_tokenizer, params.ingest.image_size
    kind, equivariance = tokenizer.chosen, getattr(tokenizer.chosen, "equivariance", None)
    if equivariance is None or not equivariance.active or equivariance.scale == 1:
        return
    key = f"`train_tokenizer.{tokenizer.kind}.equivariance.scale`"
    if tokenizer.own_training.compile:
        refuse(f"{key} is {equivariance.scale}, and `compile` is for one size of images: set one to 1.0 or to false.")
    needed = max((loss.smallest for loss in (kind.perceptual, kind.adversarial) if loss.active), default=1)
    if tokenizer.perceptual is not None and tokenizer.perceptual.network == "teacher":
        needed = max(needed, 2 ** (len(params.train_teacher.model.channels) - 1))
    smallest = equivariance.sides(size // kind.factor)[0] * kind.factor
    if smallest < needed:
        enough = min(1.0, -(-needed // kind.factor) * kind.factor / size)
        refuse(
            f"{key} is {equivariance.scale}, which makes images of {smallest} pixels a side, and the networks of the "
            f"losses need {needed}: raise it to {enough:.4}; at 1.0 there are quarter turns alone."
        )
