import pytest
import torch

from darkroom.diffusion.denoiser import clip_x0
from darkroom.diffusion.gaussian import Gaussian
from darkroom.diffusion.schedules import NoiseSchedule
from darkroom.models.decoder.network import Conditions, unet_denoiser
from models.decoder.small_unets import TOLD, everything, normals, unet

CHANGES = {**TOLD, "text_shape": (4, 5)}
X, STEPS = normals(9, 2, 1, 8, 8), torch.tensor([30, 30])


def v_prediction(learned: bool = False) -> Gaussian:
    return Gaussian(NoiseSchedule.named("cosine", 100), "v", variance="learned_range" if learned else "fixed_small")


@torch.no_grad()
@pytest.mark.parametrize("learned", [False, True])
def test_guidance_of_one_is_the_conditional_network_bit_for_bit(learned: bool) -> None:
    network, told, means = unet(**CHANGES, learned_variance=learned), everything(), v_prediction(learned)
    found = unet_denoiser(network, means, told, 1.0)(X, STEPS, None)
    expected = means.denoised(network(X, STEPS, told), X, STEPS)
    assert torch.equal(found.x0, expected.x0)
    assert found.variance is None if expected.variance is None else torch.equal(found.variance, expected.variance)


@torch.no_grad()
def test_guidance_against_float64_with_both_conditions_nulled() -> None:
    network, told, means = unet(**CHANGES, learned_variance=True).double(), everything(), v_prediction(True)
    told = Conditions(image=told.image.double(), text=told.text.double())  # type: ignore[union-attr]
    x = X.double()
    nothing = torch.zeros(2, dtype=torch.bool)
    null = Conditions(image=told.image, text=told.text, image_kept=nothing, text_kept=nothing)
    conditional, unconditional = (network(x, STEPS, each)[:, :1] for each in (told, null))
    v = unconditional + 3.0 * (conditional - unconditional)
    left = torch.from_numpy(means.schedule.alphas_cumprod)[30]
    expected = left.sqrt() * x - (1 - left).sqrt() * v
    found = unet_denoiser(network, means, told, 3.0)(x, STEPS, None)
    torch.testing.assert_close(found.x0.double(), expected, atol=2e-6, rtol=1e-5)  # x_0 is float32
    fraction = (network(x, STEPS, told)[:, 1:] + 1) / 2
    torch.testing.assert_close(found.variance.double(), fraction, atol=2e-6, rtol=1e-5)  # type: ignore[union-attr]


@torch.no_grad()
def test_an_up_sampler_that_is_told_nothing_is_asked_once() -> None:
    network = unet(low=True)
    calls = []
    network.register_forward_pre_hook(lambda module, given: calls.append(len(given[0])))
    unet_denoiser(network, v_prediction(), Conditions(low=normals(1, 2, 1, 8, 8)), 4.0)(X, STEPS, None)
    assert calls == [2]


@torch.no_grad()
def test_what_is_found_is_kept_in_its_range() -> None:
    network, told = unet(**CHANGES), everything()
    wild = unet_denoiser(network, v_prediction(), told, 20.0)(X, STEPS, None).x0
    tame = unet_denoiser(network, v_prediction(), told, 20.0, clip_x0)(X, STEPS, None).x0
    assert float(wild.abs().max()) > 1
    assert torch.equal(tame, wild.clamp(-1, 1))
