"""Whether the generator fits the tokenizer's latents, and its samples fit it."""

# No effect on any output: validates

from typing import Any

from darkroom.diffusion.fits import require_sampling
from darkroom.diffusion.settings import Diffusion
from darkroom.params.fits import refuse, require_blocks


def fits(params: Any) -> None:
    """Check the sections of the generator, its samples and its scores.

    Args:
        params: the whole of params.yaml, validated.

    Raises:
        DarkroomError: one does not fit; names its key.
    """
    section, kind = params.train_generator, params.train_generator.kind
    if reason := section.chosen.unfit(params.ingest.image_size // params.train_tokenizer.chosen.factor):
        refuse(f"`train_generator.{kind}`: {reason}.")
    blocks, images = params.score_generator.blocks, params.sample_generator.common.images
    require_blocks("score_generator", blocks, "sample_generator.common.images", images)
    if isinstance(diffusion := getattr(section.chosen, "diffusion", None), Diffusion):
        sampling, source = getattr(params.sample_generator, kind), f"train_generator.{kind}.diffusion"
        timesteps = f"{source}.timesteps", diffusion.timesteps  # type: ignore[attr-defined]
        weaker = getattr(sampling, "weaker_sigma_rel", None)
        dropouts = {f"{source}.label_dropout": section.chosen.label_dropout} if weaker is None else {}
        if weaker is not None and not section.own_training.ema_profiles:
            refuse(
                f"`sample_generator.{kind}.weaker_sigma_rel` is {weaker}, and `train_generator.training.ema_profiles` "
                "is []: give that widths to rebuild it from, say [0.05, 0.1]."
            )
        require_sampling(f"sample_generator.{kind}.{{}}".format, sampling, source, diffusion, timesteps, dropouts)
