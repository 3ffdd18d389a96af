"""Classifier guidance on a mixture of two Gaussians, whose score and classifier are known in closed form."""

import pytest
import torch
from torch.nn import functional

from darkroom.diffusion.denoiser import Guidance, denoiser
from darkroom.diffusion.flow import PATHS, Flow
from darkroom.diffusion.gaussian import Gaussian
from darkroom.diffusion.samplers import sample
from darkroom.diffusion.schedules import NoiseSchedule
from darkroom.diffusion.settings import Sampling
from darkroom.diffusion.types import Denoised

CENTRES, WIDTH, WEIGHTS = torch.tensor([-1.0, 0.7]), 0.25, torch.tensor([0.3, 0.7])
X = torch.linspace(-2, 2, 24).reshape(6, 2, 2)
Y = torch.tensor([0, 1, 1, 0, 1, 0])
FLOWS = [Flow(path=path) for path in PATHS]
SCHEDULE = NoiseSchedule.named("cosine", 100)
GAUSSIANS = [Gaussian(SCHEDULE, target=target) for target in ("eps", "x0", "v")]
GAUSSIANS += [Gaussian(SCHEDULE, variance="learned_range")]


def joint(x, alpha, sigma):
    """Return log p_t(x, y) of each y, (2, ...), up to a constant."""
    variance = alpha**2 * WIDTH**2 + sigma**2
    return torch.stack([w.log() - (x - alpha * c) ** 2 / (2 * variance) for w, c in zip(WEIGHTS, CENTRES, strict=True)])


@torch.enable_grad()
def score(x, alpha, sigma, y, scale):
    """Return ∇ log p_t(x) p_t(y | x)^s, by autograd of the closed form in float64."""
    x = x.double().requires_grad_()
    both = joint(x, alpha.double(), sigma.double())
    chosen = both.gather(0, y.reshape(1, -1, *(1,) * (x.ndim - 1)).expand(1, *x.shape))[0]
    marginal = both.logsumexp(0)
    return torch.autograd.grad((marginal + scale * (chosen - marginal)).sum(), x)[0].detach()


def levels_of(objective, t, x):
    alpha, sigma = objective.levels(t)
    return (each.float().reshape(-1, *(1,) * (x.ndim - 1)) for each in (alpha, sigma))


def network(objective):
    """Return what predicts the mixture without y in the objective's own terms."""

    def output(x, timesteps, before):
        # x0 of the score divides by α, which is 0 at noise alone.
        t = (timesteps / 1000).clamp(max=0.999) if isinstance(objective, Flow) else timesteps
        alpha, sigma = levels_of(objective, t, x)
        known = score(x, alpha, sigma, torch.zeros(len(x), dtype=torch.int64), 0.0).float()
        eps, x0 = -sigma * known, (x + sigma**2 * known) / alpha
        if isinstance(objective, Flow):
            rates = PATHS[objective.path](t.reshape(-1, *(1,) * (x.ndim - 1)))
            return rates.alpha_rate * x0 + rates.sigma_rate * eps
        mean = {"eps": eps, "x0": x0, "v": alpha * eps - sigma * x0}[objective.target]
        return torch.cat([mean, torch.zeros_like(mean)], 1) if objective.learns_variance else mean

    return output


def classifier(objective, y):
    """Return log p_t(y | x), of all numbers of an image, which are independent."""

    def log_probability(x, timesteps):
        t = timesteps / 1000 if isinstance(objective, Flow) else timesteps
        logits = joint(x, *levels_of(objective, t, x)).log_softmax(0)
        chosen = logits.gather(0, y.reshape(1, -1, *(1,) * (x.ndim - 1)).expand(1, *x.shape))[0]
        return chosen.flatten(1).sum(1)

    return log_probability


@pytest.mark.parametrize("objective", FLOWS + GAUSSIANS)
def test_the_score_is_that_of_the_density_times_the_classifiers_power(objective):
    for time in (0.1, 0.5, 0.9):
        t = torch.full((6,), time) if isinstance(objective, Flow) else torch.full((6,), int(100 * time))
        x = X[..., None].clone()
        alpha, sigma = levels_of(objective, t, x)
        denoise = denoiser(network(objective), objective, Guidance(classifier=3.5), classifier=classifier(objective, Y))
        found = denoise(x, t, None)
        expected = score(x, alpha, sigma, Y, 3.5).float()
        torch.testing.assert_close((alpha * found.x0 - x) / sigma**2, expected, rtol=2e-3, atol=2e-3)
        if isinstance(objective, Flow):
            rates = PATHS[objective.path](t[:, None, None, None])
            velocity = rates.alpha_rate * found.x0 + rates.sigma_rate * (-sigma * expected)
            torch.testing.assert_close(found.velocity, velocity, rtol=2e-3, atol=2e-3)


def test_unconditional_network_and_classifier_sample_the_class():
    """p(x) p(y | x) is p(x, y): a scale of 1 gives the images of y, of each its own."""
    objective, y = Gaussian(SCHEDULE), torch.arange(400) % 2
    noise = torch.randn(400, 1, 1, generator=torch.Generator().manual_seed(0))
    denoise = denoiser(network(objective), objective, Guidance(classifier=1.0), classifier=classifier(objective, y))
    found = sample(denoise, noise, objective, Sampling(solver="ddim", steps=40)).flatten()
    for label in (0, 1):
        assert float(found[y == label].mean()) == pytest.approx(float(CENTRES[label]), abs=0.06)
        assert float(found[y == label].std()) == pytest.approx(WIDTH, rel=0.2)


def test_both_guidances_add_up():
    """That without a classifier leads the prediction, and the classifier's gradient is added to its score."""
    objective, t, x = Flow(), torch.full((3,), 0.4), torch.randn(3, 4, 2, 2)
    said, null, given = torch.randn(3, 3, 4, 2, 2)
    both, log_probability = lambda *_: torch.cat([said, null]), lambda x, _: (given * x).flatten(1).sum(1)
    found = denoiser(
        lambda *_: said, objective, Guidance(2.0, classifier=3.0, channels=3), both=both, classifier=log_probability
    )(x, t, None)
    expected = null + 2 * (said - null) - 3 * 0.4 / 0.6 * given
    torch.testing.assert_close(found.velocity[:, :3], expected[:, :3])
    torch.testing.assert_close(found.velocity[:, 3:], said[:, 3:])


def test_outside_the_interval_and_at_noise_alone_the_classifier_is_silent():
    objective, asked = Flow(), []

    def log_probability(x, timesteps):
        asked.append(float(timesteps[0]))
        return x.flatten(1).sum(1)

    velocity = torch.randn(2, 1, 2, 2)
    how = Guidance(classifier=2.0, interval=(0.25, 0.75))
    denoise = denoiser(lambda *_: velocity, objective, how, classifier=log_probability)
    for time in (1.0, 0.9, 0.5, 0.1):
        denoise(torch.randn(2, 1, 2, 2), torch.full((2,), time), None)
    assert asked == [500.0]
    assert [Guidance(classifier=2.0, schedule="linear").classifier_at(time) for time in (1.0, 0.5, 0.0)] == [0, 1, 2]
    everywhere = denoiser(lambda *_: velocity, objective, Guidance(classifier=2.0), classifier=log_probability)
    assert torch.equal(everywhere(torch.randn(2, 1, 2, 2), torch.ones(2), None).velocity, velocity)
    plain = denoiser(lambda *_: velocity, objective, Guidance(classifier=2.0))(velocity, torch.full((2,), 0.5), None)
    assert torch.equal(plain.velocity, velocity)


def test_a_classifier_of_another_direction_leads_the_other_way():
    objective, x, t = Gaussian(SCHEDULE), torch.zeros(2, 1, 2, 2), torch.full((2,), 50)
    centre = torch.tensor([1.0, -1.0])
    found = denoiser(
        lambda x, *_: torch.zeros_like(x), objective, Guidance(classifier=1.0),
        classifier=lambda x, _: functional.logsigmoid(centre * x.flatten(1).sum(1)),
    )(x, t, None)  # fmt: skip
    assert isinstance(found, Denoised) and (found.x0[0] > 0).all() and (found.x0[1] < 0).all()
