"""Networks as small as can be, each trained by one update and sampled as the whole of params.yaml says."""

import copy
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from darkroom.check import check
from darkroom.diffusion.objectives import objective_of
from darkroom.diffusion.scalers import EmbeddingScaler, LatentScaler
from darkroom.models.decoder.data import Conditioner, PixelSpace
from darkroom.models.decoder.network import DecoderUNet
from darkroom.models.decoder.opening import DecoderData
from darkroom.models.decoder.opening import config_of as unet_config
from darkroom.models.decoder.recipe import DecoderRecipe
from darkroom.models.decoder.sample import CascadeStage, SampleRequest, sample_stage
from darkroom.models.generators.conditions import NOTHING, START, ConditionSource, asked_classes, balanced, condition_of
from darkroom.models.generators.dit.classifier import Classifier, ClassifierConfig
from darkroom.models.generators.dit.network import DiT
from darkroom.models.generators.dit.recipe import DiTRecipe, config_of
from darkroom.models.generators.kind_settings import READ
from darkroom.models.prior.network import Prior, PriorConfig, PriorNetwork, sample_prior
from darkroom.models.prior.recipe import PriorRecipe
from darkroom.training.recipe import Batch

COUNT, CLASSES, DIM, TEXT = 4, 2, 6, (4, 5)  # images of a batch, classes, length of an embedding, tokens
POSITIONS = np.arange(COUNT)
# What makes the networks of params.yaml small; everything else stands there as it does by default.
SMALL: dict[str, Any] = {
    "train_generator.dit.model.width": 16,
    "train_generator.dit.model.depth": 2,
    "train_generator.dit.model.heads": 2,
    "train_generator.dit.sampling.steps": 2,
    "train_decoder.unets": {
        "base": {
            "size": 32,
            "embeddings": "data/embeddings",
            "model": {
                **{"channels": [8], "attention": [True], "head_dim": 8, "norm_groups": 4, "patch": 8},
                **{"image_map": 0, "dropout": 0.0},
            },
            "diffusion": {"objective": "gaussian", "embedding_noise": 0.0},
            "grids": {"steps": 2},
        }
    },
    "sample_decoder.unets": {},
    "train_prior.model": {"width": 8, "depth": 1, "heads": 2},
    "train_prior.evaluate.steps": 2,
    "sample_generator.common.images": 1000,
}


def values_of(params: dict[str, Any], row: dict[str, Any]) -> dict[str, Any]:
    """Return the values of params.yaml with some in place of others, or added."""
    changed = copy.deepcopy(params)
    for key, value in row.items():
        *sections, name = key.split(".")
        place = changed
        for section in sections:
            place = place.setdefault(section, {})
        place[name] = value
    return changed


def accepted(values: dict[str, Any]) -> Any:
    """Return the sections of params.yaml as stages have them.

    Raises:
        DarkroomError: `darkroom check` refuses them.
    """
    whole = check.validated(values)
    for fits in check.FITS:
        fits(whole)
    return whole


def filled(model: nn.Module) -> nn.Module:
    """Return a network that predicts something: its last layer is zero at first."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.03 * torch.randn_like(parameter))
    return model


def random(*shape: int) -> Tensor:
    return torch.from_numpy(np.random.default_rng(0).standard_normal(shape).astype(np.float32))


def embedded(names: tuple[str, ...]) -> dict[str, Tensor]:
    """Return stored embeddings; the last image has none, as one without a caption."""
    stored = {"image": random(COUNT, DIM), "text": random(COUNT, DIM), "encoding": random(COUNT, *TEXT)}
    kept = torch.ones(COUNT)
    kept[-1] = 0
    return {name: stored[name] * kept.view(-1, *(1,) * (stored[name].ndim - 1)) for name in names}


def learned(recipe: Any, batch: Batch) -> dict[str, float]:
    """Return the losses of one update and of the validation after it."""
    recipe.model.train()
    losses = recipe.loss(batch)
    losses["loss"].backward()
    for parameter in recipe.model.parameters():
        if parameter.grad is not None:
            assert parameter.grad.isfinite().all()
            parameter.data.sub_(1e-3 * parameter.grad.clamp(-1, 1))
    recipe.model.eval()
    with torch.no_grad():
        return {name: values.sum().item() for name, values in {**losses, **recipe.validate(batch)}.items()}


def dit(whole: Any) -> tuple[dict[str, float], list[tuple[Tensor, tuple[int, ...]]]]:
    """Return the losses, and what is sampled with the shape that it must have: images, and the grid of the training."""
    settings, how = whole.train_generator.chosen, whole.sample_generator.dit
    names = READ.get(settings.condition, ())
    factor = whole.train_tokenizer.chosen.factor
    shape = (2, *[whole.ingest.image_size // factor] * 2)
    torch.manual_seed(0)
    config = config_of(
        settings, *shape[:2], CLASSES, DIM if names else 0, TEXT if "encoding" in names else None,
        (TEXT[0], 3) if settings.condition == "caption" else None,
    )  # fmt: skip
    model = filled(DiT(config))
    told = {"labels": torch.arange(COUNT) % CLASSES} if settings.condition == "class" else embedded(names)
    if settings.condition == "caption":
        told = {"caption": torch.tensor([[START, 1, START + 1, 0]] * (COUNT - 1) + [[0] * 4])}
    asked = NOTHING
    if settings.condition == "class":
        asked = asked_classes(balanced(CLASSES))
    elif told:
        asked = ConditionSource(
            lambda numbers: condition_of({name: value[numbers % COUNT] for name, value in told.items()})
        )
    mean, std = settings.diffusion.scale([0.1, -0.2], [0.5, 2.0])
    # Images of noise would be clipped: this tokenizer shows latents as they are.
    tokenizer = SimpleNamespace(latent_shape=shape, decode=lambda latents: latents, batch=COUNT)
    recipe = DiTRecipe(
        model, settings.diffusion, 9, [], [], LatentScaler(mean, std), tokenizer, settings.sampling,
        conditions=asked,
    )  # fmt: skip
    losses = learned(recipe, Batch(POSITIONS, {"mean": random(COUNT, *shape), "logvar": random(COUNT, *shape), **told}))
    sampler = recipe.sampler
    if how.classifier_scale:
        sampler.classifier = Classifier(ClassifierConfig(*shape[:2], CLASSES, 8, 1, 2, 1))
    with torch.no_grad():
        images = sampler([0, 1], asked.condition(np.arange(2)), 1, how)
        grid = torch.from_numpy(recipe.preview().astype(np.float32))
    return losses, [(images, (2, *shape)), (grid, (10 * (2 if settings.condition == "class" else 10), *shape))]


def unet(whole: Any) -> tuple[dict[str, float], list[tuple[Tensor, tuple[int, ...]]]]:
    """Return the losses, and what is sampled with the shape that it must have: images, a grid, one in-painted."""
    settings, how = whole.train_decoder.unets["base"], whole.sample_decoder.sampling("base")
    metadata = {"embedding_mean": [0.1] * DIM, "embedding_std": [2.0] * DIM}
    scaler = EmbeddingScaler.from_facts(metadata) if settings.image_conditioned else None
    opened = DecoderData(PixelSpace(), Conditioner(scaler), {}, 1, {}, DIM, TEXT)
    torch.manual_seed(0)
    model = filled(DecoderUNet(unet_config(settings, opened)))
    objective = objective_of(settings.diffusion, whole.train_decoder.timesteps)
    recipe = DecoderRecipe(model, settings, objective, opened.space, opened.conditioner, 3, [], [])
    data = {"images": torch.arange(COUNT * 1024).to(torch.uint8).view(COUNT, 1, 32, 32)}
    data |= embedded(("image",)) if settings.image_conditioned else {}
    data |= embedded(("encoding",)) if settings.model.text_tokens else {}
    losses = learned(recipe, Batch(POSITIONS, data))
    stage = CascadeStage("base", recipe.model, objective, True, metadata)
    request = SampleRequest([0, 1], random(2, DIM), random(2, *TEXT))
    shape, device = (2, 1, 32, 32), torch.device("cpu")
    with torch.no_grad():
        found = [sample_stage(stage, how, request, None, 0, device)]
        grids = settings.grids.sampling(settings.diffusion, whole.train_decoder.timesteps)
        found.append(sample_stage(stage, how.model_copy(update=grids.model_dump()), request, None, 0, device))
        if whole.sample_decoder.pictures.inpainted:
            known = SampleRequest([0, 1], request.image, request.text, None, random(*shape), torch.ones(shape), 2)
            found.append(sample_stage(stage, how, known, None, 0, device))
    return losses, [(each, shape) for each in found]


def prior(whole: Any) -> tuple[dict[str, float], list[tuple[Tensor, tuple[int, ...]]]]:
    """Return the losses, and what is sampled with the shape that it must have: embeddings, and those of the scores."""
    settings = whole.train_prior
    model, diffusion = settings.model, settings.diffusion
    text_shape = TEXT if whole.embed_clip.encodings else None
    torch.manual_seed(0)
    network = filled(PriorNetwork(PriorConfig(DIM, text_shape, model.width, model.depth, model.heads)))
    network.set_scaler(EmbeddingScaler.of(random(COUNT, DIM).numpy()))
    made = Prior(network, objective_of(diffusion, diffusion.timesteps), whole.embed_clip.normalise)
    names = ("image", "text", "encoding")[: 3 if text_shape else 2]
    data = {name: values[:-1] for name, values in embedded(names).items()}
    losses = learned(PriorRecipe(made, diffusion, 9, [], []), Batch(POSITIONS[:-1], data))
    words, found = random(2, *TEXT) if text_shape else None, []
    for how in (whole.sample_text.prior, settings.evaluate):
        found.append(sample_prior(made, random(2, DIM), words, how.model_copy(update={"batch": 4}), 0, [0, 1]))
    return losses, [(each, (2, DIM)) for each in found]
