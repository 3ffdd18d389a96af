"""The game of `vqgan` beside taming-transformers' `VQLPIPSWithDiscriminator`: hinge, adaptive weight, start.

Its losses are computed from what our tokenizer made, with our discriminator and the same perceptual loss.
"""

import contextlib
import io
from typing import Any

import torch
from torch import Tensor, nn

from darkroom.models.tokenizers.vqgan.recipe import VQGANRecipe
from models.tokenizers.small_vqgan import batch, recipe, section
from originals.loading import taming
from originals.pairs import apart

START, WEIGHT, PERCEPTUAL = 8, 0.8, 0.3


class Distance(nn.Module):
    """A perceptual loss: the mean squared difference of some frozen features."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.features = nn.Conv2d(3, 8, 5).requires_grad_(False)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the distances, (N,)."""
        return (self.features(x) - self.features(y)).square().flatten(1).mean(dim=1)


class Spread(nn.Module):
    """The same as LPIPS returns it, (N, 1, 1, 1)."""

    def __init__(self, distance: nn.Module) -> None:
        super().__init__()
        self.distance = distance

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the distances."""
        found: Tensor = self.distance(x, y)
        return found[:, None, None, None]


def built() -> tuple[VQGANRecipe, Any]:
    """Return our recipe, and their losses around its discriminator."""
    game = {"weight": WEIGHT, "loss": "hinge", "start": START, "adaptive": "taming", "gradient_penalty": 0.0}
    distance = Distance()
    keys = {"reconstruction": "l1", "perceptual": {"network": "lpips", "weight": PERCEPTUAL}}
    ours = recipe(section(game, {"kmeans_init": False, "commitment_weight": 0.25}, **keys), distance)
    with contextlib.redirect_stdout(io.StringIO()):
        theirs = taming().VQLPIPSWithDiscriminator(START, disc_weight=WEIGHT, perceptual_weight=PERCEPTUAL)
    theirs.perceptual_loss, theirs.discriminator = Spread(distance), ours.modules["discriminator"]
    return ours, theirs


def compare() -> dict[str, float]:
    """Return how far apart they are, by what is compared."""
    found = {}
    for label, first in (("before the start", 0), ("after the start", START)):
        ours, theirs = built()
        given, parameters = batch(first), list(ours.model.parameters())
        x = ours.model.pixels(given.data["images"])
        output, quantised = ours.model(x)
        commitment = 0.25 * quantised.losses["commitment"].mean()
        loss, _ = theirs(commitment, x, output, 0, first, last_layer=ours.model.last_layer)
        expected = torch.autograd.grad(loss, parameters)
        losses = ours.loss(given)
        gradients = torch.autograd.grad(losses["loss"], parameters)
        found[f"{label}: loss"] = apart(losses["loss"], loss)
        found[f"{label}: gradients"] = max(map(apart, gradients, expected))
        if first:
            judges = list(ours.modules["discriminator"].parameters())
            judged, _ = theirs(commitment, x, output, 1, first)
            expected = torch.autograd.grad(judged, judges)
            assert ours.adversary is not None
            judgement = ours.adversary.loss(given)["loss"]
            found[f"{label}: discriminator's loss"] = apart(judgement, judged)
            found[f"{label}: discriminator's gradients"] = max(
                map(apart, torch.autograd.grad(judgement, judges), expected)
            )
    return found
