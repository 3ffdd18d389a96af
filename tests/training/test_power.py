"""Power-function profiles: widths, weights and products against quadrature in float64."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import roots_jacobi

from darkroom.training.power import decay, exponent, product

WIDTHS = st.floats(0.005, 0.279)


def mean_of(function, gamma, time=1.0):
    """∫ function(s) p(s) ds by Gauss-Jacobi quadrature, whose weight (1 + x)^γ is the profile."""
    nodes, weights = roots_jacobi(60, 0.0, gamma)
    return float(weights @ function(time * (nodes + 1) / 2) / weights.sum())


@pytest.mark.parametrize(("width", "expected"), [(0.05, 16.97), (0.10, 6.94)])
def test_exponents_are_those_of_the_paper(width, expected):
    assert exponent(width) == pytest.approx(expected, abs=0.005)


@given(WIDTHS)
def test_a_width_is_the_standard_deviation_of_its_profile(width):
    """By quadrature, to 1e-8: around the mean, so that nothing cancels."""
    gamma = exponent(width)
    mean = mean_of(lambda s: s, gamma)
    assert np.sqrt(mean_of(lambda s: (s - mean) ** 2, gamma)) == pytest.approx(width, rel=1e-8)


@given(WIDTHS, st.integers(1, 300))
def test_the_weights_of_an_average_are_the_profile_and_sum_to_one(width, updates):
    """Unrolled: what update k leaves after the decays that follow is the integral of p over its piece."""
    gamma = exponent(width)
    weights = np.zeros(updates)
    for update in range(1, updates + 1):
        weights *= decay(update, gamma)
        weights[update - 1] = 1 - decay(update, gamma)
    powers = (np.arange(updates + 1) / updates) ** (gamma + 1)
    assert weights.sum() == pytest.approx(1, rel=1e-12)
    assert np.allclose(weights, np.diff(powers), atol=1e-12)


@given(WIDTHS, WIDTHS, st.floats(1, 1e6), st.floats(1, 1e6))
def test_the_product_is_the_integral_whatever_the_order(one, other, time, later):
    """Against quadrature over the shorter profile, (γ + 1) s^γ / t^(γ + 1) the integrand: to 1e-6 of the norms."""
    first, second = sorted([(time, exponent(one)), (later, exponent(other))])
    (t, g), (u, h) = first, second
    quadrature = mean_of(lambda s: (h + 1) * (s / u) ** h / u, g, t)
    found = float(product(t, g, u, h))
    norm = np.sqrt(float(product(t, g, t, g)) * float(product(u, h, u, h)))
    assert found == float(product(u, h, t, g)) == pytest.approx(quadrature, abs=1e-6 * norm)
