"""Whether a U-Net that distils another one fits that one, and what is sampled of it."""

from typing import Any

from darkroom.diffusion.fits import require_distillable, require_sampling
from darkroom.models.decoder.sample_settings import UNetSampling
from darkroom.models.decoder.settings import TrainDecoder
from darkroom.models.decoder.unet_settings import LowResolution, UNet
from darkroom.params.fits import refuse
from darkroom.params.section import NO_FILE

_READ = ("embedding_noise", "low_noise")  # of how a U-Net is sampled, what is read of one that is distilled


def distilled_fit(params: Any) -> None:
    """Check the U-Nets with `calls` that are trained.

    Args:
        params: the whole of params.yaml, validated.

    Raises:
        DarkroomError: one does not fit; names its key.
    """
    decoder = params.train_decoder
    for name, teacher in decoder.distilled.items():
        key, unet = f"train_decoder.unets.{name}", decoder.unets[name]
        _is_teacher(decoder, name, teacher)
        _same(key, unet, f"train_decoder.unets.{teacher}", decoder.unets[teacher])
        _draws(decoder, name, teacher)
        _sampled(params, name)


def dropouts_of(source: str, unet: UNet) -> dict[str, float]:
    """Return keys and values of the fractions of conditions that a U-Net is trained without; `source`: its section."""
    fractions = {}
    if unet.told_image:
        fractions[f"{source}.image_dropout"] = unet.diffusion.image_dropout
    if unet.model.text_tokens:
        fractions[f"{source}.text_dropout"] = unet.diffusion.text_dropout
    return fractions


def _is_teacher(decoder: TrainDecoder, name: str, teacher: str) -> None:
    """Check that what is distilled is a U-Net of this decoder that has weights, and is distilled once."""
    key, unet = f"train_decoder.unets.{name}", decoder.unets[name]
    this = f"`{key}.calls` is {unet.calls}, and `{key}.weights` is {unet.weights}"
    whole = [other for other, each in decoder.unets.items() if each.calls is None]
    known = " or ".join(f"models/decoder/{other}" for other in whole)
    if unet.weights == NO_FILE:
        refuse(
            f"{this}: name there what it distils{f', {known}' if known else ''}. Or, where {name} itself is to be "
            f"distilled, take its calls out, and give another U-Net these calls and `weights: models/decoder/{name}`."
        )
    if not whole:
        refuse(f"{this}, and there is no U-Net without calls to distil: take out those of what is to be distilled.")
    if teacher not in decoder.unets or teacher == name:
        refuse(
            f"{this}, which is no other U-Net of `train_decoder.unets`: set the latter to {known}, or calls to null."
        )
    if teacher not in whole:
        origin = decoder.unets[teacher].weights
        refuse(f"{this}, which is distilled itself: set the latter to what that one distils, {origin}.")
    if not decoder.unets[teacher].trained and decoder.unets[teacher].weights == NO_FILE:
        refuse(
            f"{this}, and `train_decoder.unets.{teacher}.trained` is false, so there is nothing to distil: set that to "
            f"true, or `{key}.trained` to false, too."
        )
    if others := [other for other, its in decoder.distilled.items() if its == teacher and other != name]:
        refuse(
            f"`train_decoder.unets`: {name} and {others[0]} both distil {teacher}, whose place one of them takes: set "
            "`trained` to false for the other."
        )


def _same(key: str, unet: UNet, source: str, teacher: UNet) -> None:
    """Check that the section of a U-Net says nothing else than that of its teacher of what both must be."""
    same = ["size", "low_size", "embeddings", "clip"]
    pairs = {name: (getattr(unet, name), getattr(teacher, name)) for name in same}
    for name in type(teacher.model).model_fields:
        pairs[f"model.{name}"] = getattr(unet.model, name), getattr(teacher.model, name)
    for name in ("objective", "time_units", *teacher.diffusion.prediction()["prediction"]):
        pairs[f"diffusion.{name}"] = getattr(unet.diffusion, name), getattr(teacher.diffusion, name)
    if teacher.told_image and teacher.diffusion.embedding_noise:
        pairs["diffusion.embedding_noise"] = unet.diffusion.embedding_noise, teacher.diffusion.embedding_noise
    for name in LowResolution.model_fields:
        pairs[f"low.{name}"] = getattr(unet.low, name), getattr(teacher.low, name)
    if (asked := unet.augment.asked) and teacher.told_image and unet.embeddings != NO_FILE:
        refuse(
            f"`{key}.augment.{asked}` changes the images, and `{key}.embeddings` ({unet.embeddings}) are of the images "
            "as they are: take the former out."
        )
    for name, (own, theirs) in pairs.items():
        if own != theirs:
            value = "null" if theirs is None else theirs
            refuse(
                f"`{key}.{name}` is {own}, and that of its teacher, `{source}.{name}`, is {theirs}: set it to {value}."
            )


def _draws(decoder: TrainDecoder, name: str, teacher: str) -> None:
    """Check that the teacher can draw as it is asked to, and that this can be distilled."""
    unet, source = decoder.unets[teacher], f"train_decoder.unets.{teacher}.diffusion"
    key, how = f"train_decoder.unets.{name}", decoder.unets[name].teacher
    calls = f"{key}.calls", decoder.unets[name].calls or 0
    this = f"`{calls[0]}` is {calls[1]}"
    timesteps = "train_decoder.timesteps", decoder.timesteps
    require_sampling(f"{key}.teacher.{{}}".format, how, source, unet.diffusion, timesteps, dropouts_of(source, unet))
    require_distillable(this, calls, f"{key}.teacher.{{}}".format, how, source, unet.diffusion)
    if unet.model.self_condition:
        refuse(
            f"{this}, and `train_decoder.unets.{teacher}.model.self_condition` is true: what a step leaves to the next "
            "is not distilled. Set the latter to false, or calls to null."
        )


def _sampled(params: Any, name: str) -> None:
    """Check that nothing is asked of what is distilled that it does not read."""
    unet, key = params.train_decoder.unets[name], f"sample_decoder.unets.{name}"
    own = params.sample_decoder.unets.get(name, {})
    if unread := [each for each in own if each not in _READ and each in UNetSampling.model_fields]:
        refuse(
            f"`{key}.{unread[0]}` is {own[unread[0]]}, and `train_decoder.unets.{name}` draws in its `calls` "
            f"({unet.calls}), unguided: take it out."
        )
    if params.sample_decoder.pictures.inpainted:
        refuse(
            f"`sample_decoder.pictures.inpainted` is {params.sample_decoder.pictures.inpainted}, and follows all steps "
            f"of Gaussian diffusion, and `train_decoder.unets.{name}.calls` is {unet.calls}: set the former to 0."
        )
