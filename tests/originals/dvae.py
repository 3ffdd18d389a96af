"""`dvae` beside dalle-pytorch's `DiscreteVAE`."""

from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from darkroom.models.tokenizers.dvae.recipe import DVAERecipe
from helpers import training
from models.tokenizers.dvae_reference import settings
from originals.loading import dalle
from originals.pairs import Images, apart, gradients

TEMPERATURE = 0.875
SIZES = {"codebook_size": 32, "codebook_dim": 16, "layers": 2, "width": 24}
PARTS = ("encoder", "codebook", "decoder")
AS_UPSTREAM = {"alpha": "unit", "kl_reduction": "sum", "kl_warmup": 0}

# By what is compared: our keys, their arguments, and the channels.
VARIANTS = {
    "soft": ({}, {}, 3),
    "soft, no residual blocks": ({"residual_blocks": 0}, {"num_resnet_blocks": 0}, 3),
    "straight_through": ({"straight_through": True}, {"straight_through": True}, 3),
    "reinmax": ({"straight_through": True, "reinmax": True}, {"straight_through": True, "reinmax": True}, 3),
    "smooth_l1": ({"reconstruction": "smooth_l1"}, {"smooth_l1_loss": True}, 3),
    "KL as a sum": ({"kl_weight": 0.03}, {"kl_div_loss_weight": 0.03}, 3),
    "RGBA, alpha unit": ({}, {}, 4),
    "RGBA, all of it": (
        {"straight_through": True, "reinmax": True, "reconstruction": "smooth_l1", "kl_weight": 0.5},
        {"straight_through": True, "reinmax": True, "smooth_l1_loss": True, "kl_div_loss_weight": 0.5},
        4,
    ),
}


def draws(values: Tensor) -> AbstractContextManager[Any]:
    """Return a context in which `Tensor.exponential_` draws some values."""
    return patch.object(Tensor, "exponential_", lambda tensor: tensor.copy_(values))


def compare() -> dict[str, float]:
    """Return how far apart they are, by what is compared."""
    theirs_of, found = dalle().DiscreteVAE, {}
    for name, (keys, arguments, channels) in VARIANTS.items():
        torch.manual_seed(0)
        images = Images(4, channels, 32)
        constant = {"rule": "exponential", "start": TEMPERATURE, "minimum": 0.1, "rate": 1e-9, "images": None}
        section = settings(**{**SIZES, "temperature": constant, **AS_UPSTREAM, "residual_blocks": 2, **keys})
        recipe = DVAERecipe(section, training(batch=4), (channels, 32, 32), images, images)
        theirs = theirs_of(
            **{
                "image_size": 32,
                "num_tokens": SIZES["codebook_size"],
                "codebook_dim": SIZES["codebook_dim"],
                "num_layers": SIZES["layers"],
                "hidden_dim": SIZES["width"],
                "num_resnet_blocks": 2,
                "channels": channels,
                "temperature": TEMPERATURE,
                **arguments,
            }
        )
        ours = recipe.model.network
        with torch.no_grad():
            ours.encoder[-1].weight *= 10  # sure of some codes, so that the ways of choosing differ
        theirs.load_state_dict(ours.state_dict())  # the names are the same

        drawn = torch.from_numpy(recipe._noise(range(4), "train"))  # g = -log e, and theirs draws e
        with draws((-drawn.double()).exp()):
            loss, output = theirs(images.unit, return_loss=True, return_recons=True)
        loss.backward()
        losses = recipe.loss(images.batch)
        losses["loss"].backward()
        x = recipe.model.pixels(images.images)
        made, logits = recipe.model(x, section.relaxation, drawn, torch.tensor(TEMPERATURE))
        codes = recipe.model.encode_codes(images.images).flatten(1)
        found |= {
            f"{name}: pixels as the network sees them": apart(x, theirs.norm(images.unit)),
            f"{name}: logits": apart(logits, theirs(images.unit, return_logits=True)),
            f"{name}: output": apart(made, output),
            f"{name}: loss": apart(losses["loss"], loss),
            **{
                f"{name}: gradients of the {part}": gradients([(getattr(ours, part), getattr(theirs, part))])
                for part in PARTS
            },
            f"{name}: codes": float((codes != theirs.get_codebook_indices(images.unit)).sum()),
            f"{name}: decoded codes": apart(
                ours.decoder(recipe.model.vectors(codes.view(4, *recipe.model.places))), theirs.decode(codes)
            ),
        }
    return found
