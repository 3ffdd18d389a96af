import pytest
import torch

from darkroom.diffusion.prediction import Prediction
from darkroom.diffusion.thresholds import clipped
from darkroom.models.decoder.denoiser import denoiser
from darkroom.models.decoder.unet import Conditions
from models.decoder.small_unets import TOLD, everything, normals, unet

CHANGES = {**TOLD, "text_shape": (4, 5)}
X, STEPS = normals(9, 2, 1, 8, 8), torch.tensor([30, 30])


def prediction(learned: bool = False) -> Prediction:
    return Prediction.of("cosine", 100, target="v", learned_variance=learned, variance_range="linear", bounded=True)


@torch.no_grad()
@pytest.mark.parametrize("learned", [False, True])
def test_guidance_of_one_is_the_conditional_network_bit_for_bit(learned: bool) -> None:
    network, told, means = unet(**CHANGES, learned_variance=learned), everything(), prediction(learned)
    found = denoiser(network, means, told, 1.0)(X, STEPS, None)
    mean, share = means.split(network(X, STEPS, told))
    assert torch.equal(found.x0, means.x0(mean, X, STEPS))
    assert found.share is None if share is None else torch.equal(found.share, share)


@torch.no_grad()
@pytest.mark.parametrize("scale", [0.0, 0.5, 3.0])
def test_guidance_against_float64_with_both_conditions_nulled(scale: float) -> None:
    network, told, means = unet(**CHANGES, learned_variance=True).double(), everything(), prediction(True)
    told = Conditions(image=told.image.double(), text=told.text.double())  # type: ignore[union-attr]
    x = X.double()
    nothing = torch.zeros(2, dtype=torch.bool)
    null = Conditions(image=told.image, text=told.text, image_kept=nothing, text_kept=nothing)
    conditional, unconditional = (network(x, STEPS, each)[:, :1] for each in (told, null))
    v = unconditional + scale * (conditional - unconditional)
    left = torch.from_numpy(means.schedule.alphas_cumprod)[30]
    expected = left.sqrt() * x - (1 - left).sqrt() * v
    found = denoiser(network, means, told, scale)(x, STEPS, None)
    torch.testing.assert_close(found.x0.double(), expected, atol=2e-6, rtol=1e-5)  # x_0 is float32
    share = (network(x, STEPS, told)[:, 1:] + 1) / 2
    torch.testing.assert_close(found.share.double(), share, atol=2e-6, rtol=1e-5)  # type: ignore[union-attr]


@torch.no_grad()
def test_an_up_sampler_that_is_told_nothing_is_asked_once() -> None:
    network = unet(low=True)
    calls = []
    network.register_forward_pre_hook(lambda module, given: calls.append(len(given[0])))
    denoiser(network, prediction(), Conditions(low=normals(1, 2, 1, 8, 8)), 4.0)(X, STEPS, None)
    assert calls == [2]


@torch.no_grad()
def test_what_is_found_is_kept_in_its_range() -> None:
    network, told = unet(**CHANGES), everything()
    wild = denoiser(network, prediction(), told, 20.0)(X, STEPS, None).x0
    tame = denoiser(network, prediction(), told, 20.0, clipped)(X, STEPS, None).x0
    assert float(wild.abs().max()) > 1
    assert torch.equal(tame, wild.clamp(-1, 1))
