"""The prior: its training on noise, and the passes that sample it."""

import torch

from darkroom.diffusion.samplers import SAMPLERS
from darkroom.diffusion.scalers import EmbeddingScaler
from darkroom.models.prior.recipe import PriorRecipe
from darkroom.models.prior.sample import Prior, prior_denoiser
from darkroom.models.prior.settings import PriorSampling
from darkroom.stages import train_prior
from darkroom.tools.plan.clips import no_clip, sizes
from darkroom.tools.plan.facts import Facts
from darkroom.tools.plan.passes import Passes, batches
from darkroom.tools.plan.rows import Bare, NoiseTold
from darkroom.tools.plan.stage_plan import StagePlan
from darkroom.tools.plan.trainings import plan_training, section


def prior_recipe(facts: Facts) -> PriorRecipe:
    """Return the recipe of train_prior on noise, as if every image had a caption."""
    params = section("train_prior")
    embedding = section("embed_clip", next(iter(facts.images))).embed_clip
    dim, text = sizes()
    shape = text if embedding.encodings else None
    told = {"image": (dim,), "text": (dim,), **({"encoding": shape} if shape else {})}
    train, val = (NoiseTold(Bare(facts.count(split)), told) for split in ("train", "val"))
    config = train_prior.config_of(params, dim, shape)
    return train_prior.build(params, config, EmbeddingScaler([0.0] * dim, [1.0] * dim), embedding.normalise, train, val)


def add_prior(passes: Passes, prior: Prior, how: PriorSampling, images: int) -> None:
    """Add the passes of a prior: the solver's steps, for each candidate of each text."""
    passes.network(prior.network)
    config, batch = prior.network.config, how.batch
    text = torch.randn(batch, config.embed_dim).to(passes.device)
    words = None if config.text_shape is None else torch.randn(batch, *config.text_shape).to(passes.device)
    ask = prior_denoiser(prior.network, prior.objective, text, words, how.guidance)
    times = SAMPLERS[how.solver](prior.objective, how.steps, how.eta, None).times.to(passes.device)
    time = times[0].expand(batch)
    calls = batches(images * how.candidates, batch)
    passes.add(lambda x: ask(x, time, None), torch.randn(batch, config.embed_dim), calls, images, scale=len(times))


def plan_prior(facts: Facts) -> StagePlan:
    """Plan train_prior: the training, and its scores on the way and at the end; nothing without CLIP or captions."""
    if no_clip() or not facts.captions:
        return StagePlan("train_prior")
    params = section("train_prior")
    settings, training = params.train_prior.evaluate, params.train_prior.training
    plan = plan_training("train_prior", lambda device: prior_recipe(facts), training, params.run, facts, 2)
    if plan.source == "measured":
        passes = Passes("train_prior", training.threads, params.run.device, facts.watch)
        scored = [min(settings.images, facts.count(split)) for split in ("val", settings.split)]
        images = batches(training.images, training.validate_every) * scored[0] + scored[1]
        add_prior(passes, prior_recipe(facts).prior, settings, images)
        plan.seconds += passes.plan.seconds
    return plan
