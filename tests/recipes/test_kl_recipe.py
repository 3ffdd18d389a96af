"""The KL autoencoder's recipe: its loss as written, its noise by position."""

import numpy as np
import pytest
import torch

from darkroom.random import normal
from darkroom.recipes.kl import KLRecipe
from darkroom.schemas.tokenizers.kl import KL
from darkroom.tokenizers.kl import KLAutoencoder, build
from darkroom.training.recipe import Batch


def recipe(reconstruction):
    settings = KL(
        training={},
        channels=[8, 8],
        layers_per_block=1,
        norm_groups=4,
        latent_channels=2,
        reconstruction=reconstruction,
        kl_weight=0.25,
    )
    torch.manual_seed(0)
    return KLRecipe(KLAutoencoder(build(settings, 3, 16)), settings, 3, [], [])


def batch(positions):
    images = torch.randint(0, 256, (8, 3, 16, 16), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    return Batch(np.array(positions), {"images": images[positions]})


@pytest.mark.parametrize("reconstruction", ["mse", "l1"])
def test_the_loss_is_the_formula_in_float64(reconstruction):
    made, given = recipe(reconstruction), batch([0, 1, 2, 3])
    found = made.loss(given)
    x = given.data["images"].double() / 127.5 - 1
    noise = torch.from_numpy(normal(3, "tokenizer/train", [0, 1, 2, 3], (2, 8, 8)))
    with torch.no_grad():
        output, mean, logvar = (value.double() for value in made.model(x.float(), noise))
    error = (output - x).square() if reconstruction == "mse" else (output - x).abs()
    kl = (mean.square() + logvar.exp() - 1 - logvar).mean() / 2
    assert found["reconstruction"].item() == pytest.approx(error.mean().item(), rel=1e-5)
    assert found["kl"].item() == pytest.approx(kl.item(), rel=1e-5)
    assert found["loss"].item() == pytest.approx((error.mean() + 0.25 * kl).item(), rel=1e-5)


def test_an_image_meets_the_same_noise_in_any_batch():
    made = recipe("mse")
    seen = []
    made.modules["tokenizer"].register_forward_pre_hook(lambda _, inputs: seen.append(inputs[1]))
    made.loss(batch([0, 1, 2, 3, 4]))
    made.loss(batch([3]))
    made.validate(batch([3]))
    assert torch.equal(seen[0][3:4], seen[1]) and not torch.equal(seen[1], seen[2])
