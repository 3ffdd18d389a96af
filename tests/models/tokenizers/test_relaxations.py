"""Relaxed choices against formulas in float64: values by NumPy, gradients by finite differences or written out."""

import numpy as np
import pytest
import torch

from darkroom.models.tokenizers.dvae.relaxations import (
    gumbel_noise,
    gumbel_softmax,
    kl_to_uniform,
    reinmax,
    straight_through,
)

CODES = 5
L = np.random.default_rng(0).normal(size=CODES) * 1.5
G = np.random.default_rng(1).gumbel(size=CODES)
WEIGHTS = np.random.default_rng(2).normal(size=CODES)  # gradient of a linear loss of the choice


def softmax(x):
    powers = np.exp(x - x.max())
    return powers / powers.sum()


def jacobian(p):
    """Of softmax, at its value p."""
    return np.diag(p) - np.outer(p, p)


def tensor(x):
    return torch.tensor(x, dtype=torch.float64).view(1, CODES, 1, 1)


def gradient(function, at=L):
    """The gradient of WEIGHTS · function(l) with respect to l."""
    logits = tensor(at).requires_grad_()
    (function(logits).flatten() @ torch.tensor(WEIGHTS)).backward()
    return logits.grad.flatten().numpy()


def test_the_soft_choice_and_its_gradient():
    for tau in (0.3, 1.0, 2.0):
        function = lambda logits, tau=tau: gumbel_softmax(logits, tensor(G), tau)  # noqa: E731
        assert np.allclose(function(tensor(L)).flatten(), softmax((L + G) / tau), atol=1e-14)
        steps = [1e-6 * row for row in np.eye(CODES)]
        value = lambda at, tau=tau: WEIGHTS @ softmax((at + G) / tau)  # noqa: E731
        numeric = [(value(L + step) - value(L - step)) / 2e-6 for step in steps]
        assert np.allclose(gradient(function), numeric, atol=1e-8)


def test_straight_through_is_hard_ahead_and_soft_behind():
    function = lambda logits: straight_through(gumbel_softmax(logits, tensor(G), 0.7))  # noqa: E731
    chosen = np.eye(CODES)[(L + G).argmax()]
    assert np.allclose(function(tensor(L)).flatten(), chosen, atol=1e-14)
    assert np.allclose(gradient(function), jacobian(softmax((L + G) / 0.7)) @ WEIGHTS / 0.7, atol=1e-14)


@pytest.mark.parametrize("tau", [1.0, 1.3])
def test_the_gradient_of_reinmax_is_written_out(tau):
    """2 J(pi1) - J(pi0) / 2 of Liu et al., J(p) = diag(p) - p pᵀ, pi1 = (D + softmax(l / tau)) / 2."""
    chosen = np.eye(CODES)[(L + G).argmax()]
    function = lambda logits: reinmax(logits, straight_through(gumbel_softmax(logits, tensor(G), tau)), tau)  # noqa: E731
    assert np.allclose(function(tensor(L)).flatten(), chosen, atol=1e-14)
    pi1 = (chosen + softmax(L / tau)) / 2
    expected = (2 * jacobian(pi1) - jacobian(softmax(L)) / 2) @ WEIGHTS
    assert np.allclose(gradient(function), expected, atol=1e-14)


def test_reinmax_is_exact_for_quadratic_losses_on_average_and_straight_through_is_not():
    """The mean over D ~ softmax(l) of the estimate of d/dl E f(D), f(D) = (a · D - b · softmax(l0))²: second order."""
    rows = np.random.default_rng(3).normal(size=(3, CODES))
    p = softmax(L)
    values = [np.sum((rows @ row) ** 2) for row in np.eye(CODES)]
    exact = jacobian(p) @ values

    def mean(estimate):
        total = np.zeros(CODES)
        for code, chosen in enumerate(np.eye(CODES)):
            logits = tensor(L).requires_grad_()
            d = estimate(logits, tensor(chosen)).flatten()
            (torch.tensor(rows) @ d).square().sum().backward()
            total += p[code] * logits.grad.flatten().numpy()
        return total

    assert np.allclose(mean(lambda logits, chosen: reinmax(logits, chosen, 1.0)), exact, atol=1e-12)
    plain = mean(lambda logits, chosen: chosen - logits.softmax(1).detach() + logits.softmax(1))
    assert not np.allclose(plain, exact, atol=1e-2)


def test_reinmax_survives_codes_that_are_all_but_impossible():
    logits = torch.tensor([0.0, -300.0, 200.0]).view(1, 3, 1, 1).requires_grad_()
    choice = torch.tensor([0.0, 0.0, 1.0]).view(1, 3, 1, 1)
    (reinmax(logits, choice, 0.5) * torch.randn(1, 3, 1, 1)).sum().backward()
    assert logits.grad.isfinite().all()


def test_the_kl_is_that_of_scipy():
    from scipy.stats import entropy

    logits = np.random.default_rng(4).normal(size=(2, CODES, 3, 1))
    found = kl_to_uniform(torch.tensor(logits)).numpy()
    q = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    assert found.shape == (2, 3, 1)
    assert np.allclose(found, entropy(q, np.full_like(q, 1 / CODES), axis=1), atol=1e-14)


def test_gumbel_noise_has_its_law_and_follows_from_the_position():
    from scipy.stats import gumbel_r, kstest

    noise = gumbel_noise(0, "stream", range(40), (50, 5, 2))
    assert noise.dtype == np.float32 and np.isfinite(noise).all()
    assert kstest(noise.ravel(), gumbel_r.cdf).pvalue > 0.01
    assert np.array_equal(gumbel_noise(0, "stream", [7], (50, 5, 2))[0], noise[7])
    assert not np.array_equal(gumbel_noise(0, "other", [7], (50, 5, 2))[0], noise[7])


def test_a_zero_that_is_drawn_gives_no_infinity(monkeypatch):
    class Zeros:
        def standard_exponential(self, dtype, out):
            out[:] = 0

    monkeypatch.setattr("darkroom.models.tokenizers.dvae.relaxations.generators", lambda *_: iter([Zeros()]))
    assert np.isfinite(gumbel_noise(0, "stream", [0], (3,))).all()
