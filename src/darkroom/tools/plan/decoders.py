"""The stages of the decoder: each U-Net's training on noise."""

from typing import Any

import torch

from darkroom.diffusion.scalers import EmbeddingScaler, LatentScaler
from darkroom.models.decoder.data import ClipConditioner, Conditioner, LatentSpace, PixelSpace, Space
from darkroom.models.decoder.opening import SPLITS, DecoderData
from darkroom.models.decoder.recipe import DecoderRecipe
from darkroom.models.decoder.settings import TrainDecoder, UNet
from darkroom.params.numbers import NO_FILE
from darkroom.params.stage import address
from darkroom.stages import train_decoder
from darkroom.tools.plan.clips import no_clip, sizes, untrained
from darkroom.tools.plan.facts import Facts
from darkroom.tools.plan.rows import NoiseImages, NoiseLatents, NoiseTold
from darkroom.tools.plan.stage_plan import StagePlan
from darkroom.tools.plan.trainings import plan_training, section, tokenizer_recipe


def decoder_recipe(facts: Facts, name: str, device: torch.device) -> DecoderRecipe:
    """Return the recipe of a U-Net on noise, with an untrained tokenizer and CLIP on the device where it asks them."""
    params = section("train_decoder", name)
    return train_decoder.build(params, name, _opened(params.train_decoder, name, facts, device))


def _opened(decoder: TrainDecoder, name: str, facts: Facts, device: torch.device) -> DecoderData:
    unet = decoder.unets[name]
    space: Space = PixelSpace()
    channels, stored = facts.image_shape[0], False
    if decoder.tokenizer != NO_FILE:
        tokenizer = tokenizer_recipe(facts).model.eval().to(device)
        channels, stored = tokenizer.latent_shape[0], decoder.latents != NO_FILE
        space = LatentSpace(tokenizer, LatentScaler([0.0] * channels, [1.0] * channels))
    conditioner, shapes, told = _teller(unet, device)
    rows: dict[str, Any] = {}
    for split in SPLITS:
        count = facts.count(split)
        if stored:
            rows[split] = NoiseLatents(count, tokenizer.latent_shape, facts.classes, "point")
        else:
            rows[split] = NoiseImages(count, facts.image_shape, facts.classes)
        rows[split] = NoiseTold(rows[split], shapes)
    return DecoderData(space, conditioner, rows, channels, {}, **told)


def _teller(unet: UNet, device: torch.device) -> tuple[Conditioner, dict[str, tuple[int, ...]], dict[str, Any]]:
    """Return what tells a U-Net of CLIP, the shapes of what it needs of each row, and the shapes of what it tells."""
    if not unet.conditioned:
        return Conditioner(), {}, {}
    dim, text = sizes()
    told = {"embed_dim": dim, "text_shape": text}
    if unet.clip != NO_FILE:
        conditioner = ClipConditioner(
            untrained().to(device), _unit(dim) if unet.told_image else None, unet.model.text_tokens
        )
        return conditioner, {"tokens": text[:1]} if unet.model.text_tokens else {}, told
    shapes = {"image": (dim,)} if unet.told_image else {}
    return Conditioner(_unit(dim)), {**shapes, **({"encoding": text} if unet.model.text_tokens else {})}, told


def _unit(dim: int) -> EmbeddingScaler:
    return EmbeddingScaler([0.0] * dim, [1.0] * dim)


def left_out(name: str) -> bool:
    """Return whether a U-Net is left out of the cascade: it has no weights, or there is no CLIP to tell it anything."""
    return name not in section("train_decoder", name).train_decoder.cascade(not no_clip())


def plan_unet(facts: Facts, name: str) -> StagePlan:
    """Plan train_decoder of a U-Net: its output is the averaged and the raw weights; nothing where it is idle."""
    params, stage = section("train_decoder", name), address("train_decoder", name)
    if params.idle or left_out(name):
        return StagePlan(stage)
    settings = params.train_decoder.training_of(name)
    return plan_training(stage, lambda device: decoder_recipe(facts, name, device), settings, params.run, facts, 2)
