"""Whether the prior and the images of texts fit CLIP, the decoder and each other."""

from typing import Any

from darkroom.diffusion.fits import require_sampling
from darkroom.models.decoder.fits import require_stored


def fits(params: Any) -> None:
    """Check the sections of the prior and of the images of texts; without a CLIP there are none.

    Args:
        params: the whole of params.yaml, validated.

    Raises:
        DarkroomError: one does not fit; names its key.
    """
    if params.train_clip.source == "none":
        return
    # Without the embeddings that it is trained on there is no prior, and nothing to score.
    stored = {"train", "val"} <= set(params.embed_clip.store)
    splits = {"train_prior.evaluate.split": params.train_prior.evaluate.split}
    conditioned = any(unet.conditioned for unet in params.train_decoder.cascade(True).values())
    if conditioned:
        splits["sample_text.split"] = params.sample_text.split
    if stored:
        for key, split in splits.items():
            require_stored(params, key, split)
    if conditioned:
        diffusion, source = params.train_prior.diffusion, "train_prior.diffusion"
        timesteps, dropouts = f"{source}.timesteps", {f"{source}.text_dropout": diffusion.text_dropout}
        how = params.sample_text.prior
        require_sampling(
            "sample_text.prior.{}".format, how, source, diffusion, (timesteps, diffusion.timesteps), dropouts
        )
