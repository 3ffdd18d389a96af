"""Checks that each diffusion network is sampled as it is trained: solver, steps, guidance, in-painting."""

from collections.abc import Mapping
from typing import Any

from darkroom.diffusion.settings import Diffusion, Sampling, misfit
from darkroom.errors import DarkroomError
from darkroom.models.decoder.settings import UNet
from darkroom.params.section import PARAMS


def diffusion_fits(params: Any, cascade: Mapping[str, UNet], texts: bool) -> None:
    """Check that solvers, steps and guidance fit what the networks are trained for.

    Args:
        params: the whole of params.yaml, validated.
        cascade: the U-Nets that will have weights.
        texts: whether images are made of texts, by a prior.

    Raises:
        DarkroomError: the first misfit; names its key and what to set it to.
    """
    kind, generator = params.train_generator.kind, params.train_generator.chosen
    if isinstance(getattr(generator, "diffusion", None), Diffusion):
        where, source = f"sample_generator.{kind}", f"train_generator.{kind}.diffusion"
        timesteps = f"{source}.timesteps", generator.diffusion.timesteps
        dropouts = {f"{source}.label_dropout": generator.label_dropout}
        _fits(where, getattr(params.sample_generator, kind), source, generator.diffusion, timesteps, dropouts)
    timesteps = "train_decoder.timesteps", params.train_decoder.timesteps
    for name, unet in cascade.items():
        own, source = params.sample_decoder.unets.get(name, {}), f"train_decoder.unets.{name}.diffusion"
        sampling, dropouts = params.sample_decoder.sampling(name), {}
        if unet.told_image:
            dropouts[f"{source}.image_dropout"] = unet.diffusion.image_dropout
        if unet.model.text_tokens:
            dropouts[f"{source}.text_dropout"] = unet.diffusion.text_dropout
        _fits("sample_decoder.common", sampling, source, unet.diffusion, timesteps, dropouts, name, own)
        if unet.diffusion.objective != "gaussian" and params.sample_decoder.pictures.inpainted:
            raise DarkroomError(
                f"{PARAMS}: `sample_decoder.pictures.inpainted` follows Gaussian diffusion, and `{source}.objective` "
                f"is {unet.diffusion.objective}: set the former to 0."
            )
    if texts:
        prior, source = params.train_prior.diffusion, "train_prior.diffusion"
        dropouts = {f"{source}.text_dropout": prior.text_dropout}
        timesteps = f"{source}.timesteps", prior.timesteps
        _fits("sample_text.prior", params.sample_text.prior, source, prior, timesteps, dropouts)


def guidance_fits(key: str, guidance: float, source: str, dropout: float) -> None:
    """Check that a guided network learns the unconditional prediction: that its condition is dropped at times.

    Raises:
        DarkroomError: guidance is not 1, and the fraction of dropped conditions is 0.
    """
    if guidance != 1 and not dropout:
        raise DarkroomError(
            f"{PARAMS}: `{key}` is {guidance}, and `{source}` is 0, so the network never learns the unconditional "
            "prediction, from which guidance leads away: set it above 0, or the guidance to 1.0."
        )


def _fits(
    where: str,
    sampling: Sampling,
    source: str,
    diffusion: Diffusion,
    timesteps: tuple[str, int],
    dropouts: Mapping[str, float],
    unet: str = "",
    own: Mapping[str, Any] | None = None,
) -> None:
    """Check one network.

    Args:
        where: section of the sampling.
        sampling: its values.
        source: section of the training.
        diffusion: its values.
        timesteps: key and value of the length of the noise schedule.
        dropouts: keys and values of the fractions of conditions dropped while training.
        unet: name of a U-Net.
        own: keys that the U-Net has for itself.
    """

    def key(name: str) -> str:
        return f"sample_decoder.unets.{unet}.{name}" if own and name in own else f"{where}.{name}"

    if found := misfit(sampling, diffusion, timesteps[1]):
        other = timesteps[0] if found.source == "timesteps" else f"{source}.{found.source}"
        raise DarkroomError(
            f"{PARAMS}: `{key(found.key)}` is {found.value}, and `{other}` is {found.bound}: {found.remedy}."
        )
    for name, dropout in dropouts.items():
        guidance_fits(key("guidance"), sampling.guidance, name, dropout)
