"""The stages that make images of embeddings and of texts, and those that score them: passes of untrained networks."""

from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from darkroom.diffusion.denoiser import Denoise, Denoised
from darkroom.diffusion.samplers import SAMPLERS
from darkroom.models.clip.judge import open_clip
from darkroom.models.decoder.network import Conditions, UNetConfig, unet_denoiser
from darkroom.models.decoder.sample_settings import Decoding, SampleDecoder
from darkroom.models.decoder.score_settings import Judges
from darkroom.models.decoder.variations import COLUMNS
from darkroom.models.generators.score_settings import ScoreGenerator
from darkroom.models.tokenizers.perceptual import untrained as perceptual_network
from darkroom.models.tokenizers.pixels import to_network
from darkroom.params.numbers import NO_FILE
from darkroom.tools.plan.clips import embed, no_clip, untrained
from darkroom.tools.plan.decoders import decoder_recipe, left_out
from darkroom.tools.plan.facts import Facts
from darkroom.tools.plan.passes import Passes, batches, noise_images, see
from darkroom.tools.plan.priors import add_prior, prior_recipe
from darkroom.tools.plan.readers import reader_recipe
from darkroom.tools.plan.stage_plan import StagePlan
from darkroom.tools.plan.trainings import section, tokenizer_recipe


def _trained() -> list[str]:
    """Return the U-Nets of the cascade."""
    return [name for name in section("sample_decoder").train_decoder.unets if not left_out(name)]


def _imagines(facts: Facts) -> bool:
    """Return whether images are made of texts: there are CLIP and captions, and a U-Net is told of them."""
    told = (section("train_decoder", name).train_decoder.unets[name].conditioned for name in _trained())
    return not no_clip() and bool(facts.captions) and any(told)


def _sampled(split: str, images: int | None, facts: Facts) -> int:
    """Return how many images of a split are asked for."""
    return facts.count(split) if images is None else min(images, facts.count(split))


def _conditions(config: UNetConfig, batch: int) -> Conditions:
    """Return noise for all that a U-Net is told."""
    shape = (batch, config.image_channels, config.size, config.size)
    level = torch.full((batch,), 0.1)
    return Conditions(
        image=torch.randn(batch, config.embed_dim) if config.embed_dim else None,
        text=None if config.text_shape is None else torch.randn(batch, *config.text_shape),
        low=torch.randn(shape) if config.low else None,
        image_noise=level if config.embedding_noise else None,
        low_noise=level if config.low_noise else None,
    )


def _cascade(passes: Passes, settings: Decoding, calls: int, images: int, facts: Facts) -> None:
    """Add so many passes of a batch through the whole cascade: the steps of each U-Net, then the way to pixels."""
    device, batch = passes.device, settings.batch
    for name in _trained():
        recipe, how = decoder_recipe(facts, name, device), settings.sampling(name)
        config = recipe.model.config
        passes.network(recipe.model)
        told = _conditions(config, batch)
        told = Conditions(**{key: None if value is None else value.to(device) for key, value in vars(told).items()})
        ask = unet_denoiser(recipe.model, recipe.objective, told, how.guidance, None, config.self_condition)
        times = SAMPLERS[how.solver](recipe.objective, how.steps, how.eta, None).times.to(device)
        x = torch.randn(batch, config.image_channels, config.size, config.size)
        passes.add(partial(_asked, ask, times[0].expand(batch)), x, calls, images, scale=len(times))
    if section("train_decoder", _trained()[0]).train_decoder.tokenizer != NO_FILE:
        tokenizer = tokenizer_recipe(facts).model
        passes.network(tokenizer)
        passes.add(tokenizer.decode, torch.randn(batch, *tokenizer.latent_shape), calls, images)


def _asked(ask: Denoise, time: Tensor, x: Tensor) -> Denoised:
    return ask(x, time, None)


def _further(settings: SampleDecoder, images: int) -> int:
    """Return the passes of the further pictures."""
    asked, batch = settings.pictures, settings.batch
    varied, between = min(asked.variations, images), min(asked.interpolations, images // 2)
    calls = batches(varied * COLUMNS, batch) + batches(between * COLUMNS, batch)
    return calls + asked.resamples * batches(min(asked.inpainted, images), batch)


def _written(plan: StagePlan, images: int, facts: Facts) -> StagePlan:
    """Add what it takes to write images."""
    plan.seconds += images * facts.prepare_seconds
    plan.disk = {"outputs": int(2 * images * (facts.image_bytes + 1024))}
    return plan


def plan_sample_decoder(facts: Facts) -> StagePlan:
    """Plan sample_decoder: its images and its further pictures; nothing without a U-Net."""
    params = section("sample_decoder")
    settings = params.sample_decoder
    if not (names := _trained()):
        return StagePlan("sample_decoder")
    passes = Passes("sample_decoder", settings.threads, params.run.device, facts.watch)
    images = _sampled(settings.split, settings.images, facts)
    told = any(section("train_decoder", name).train_decoder.unets[name].told_image for name in names)
    calls = batches(images, settings.batch) + (_further(settings, images) if told else 0)
    _cascade(passes, settings, calls, images, facts)
    return _written(passes.plan, images, facts)


def plan_sample_text(facts: Facts) -> StagePlan:
    """Plan sample_text: the prior's candidates, then the cascade; nothing without either."""
    params = section("sample_text")
    settings, decoding = params.sample_text, params.sample_decoder
    if not _imagines(facts):
        return StagePlan("sample_text")
    passes = Passes("sample_text", settings.threads, params.run.device, facts.watch)
    images = _sampled(settings.split, settings.images, facts)
    add_prior(passes, prior_recipe(facts).prior, settings.prior, images)
    _cascade(passes, decoding, batches(images, decoding.batch), images, facts)
    return _written(passes.plan, images, facts)


def _score(stage: str, settings: ScoreGenerator, judges: Judges, images: int, device: str, facts: Facts) -> StagePlan:
    """Plan the scores of samples: each extractor sees them, each other judge them and their originals."""
    passes = Passes(stage, settings.threads, device, facts.watch)
    names = sorted({"in_domain", *section("reference_stats").reference_stats.extractors})
    see(passes, names, facts, settings.batch, images)
    pairs, calls = noise_images(facts, settings.batch), batches(images, settings.batch)
    if judges.lpips == "lpips":
        network = perceptual_network("lpips", facts.image_shape[1])
        passes.network(network)
        passes.add(lambda x: network(to_network(x), to_network(x)), pairs, calls, images)
    own = judges.clip == "models/clip"
    if judges.clip != NO_FILE and not (own and no_clip()):
        clip = untrained() if own else open_clip(Path(judges.clip), "score_decoder.clip")
        embed(passes, clip, settings.batch, 2 * calls, batches(min(images, facts.captions), settings.batch), facts)
    if judges.attributes == "scenes":
        reader = reader_recipe(facts).model
        passes.network(reader)
        passes.add(lambda x: reader(reader.prepared(x)), pairs, 2 * calls, images)
    passes.plan.seconds += 4 * images * facts.read_seconds
    return passes.plan


def plan_score_decoder(facts: Facts) -> StagePlan:
    """Plan score_decoder: nothing without images."""
    if not _trained():
        return StagePlan("score_decoder")
    params, sampling = section("score_decoder"), section("sample_decoder").sample_decoder
    settings, images = params.score_decoder, _sampled(sampling.split, sampling.images, facts)
    return _score("score_decoder", settings, settings, images, params.run.device, facts)


def plan_score_text(facts: Facts) -> StagePlan:
    """Plan score_text: nothing without images."""
    if not _imagines(facts):
        return StagePlan("score_text")
    params, sampling = section("score_text"), section("sample_text").sample_text
    images = _sampled(sampling.split, sampling.images, facts)
    return _score("score_text", params.score_text, params.score_decoder, images, params.run.device, facts)
