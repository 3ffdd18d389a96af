"""The trend of a held-out score over the images seen."""

import numpy as np
import pytest

from darkroom.training.plateau import exponent_of, rest_of, trend


def falling(exponent, images=1000, every=20):
    """A power law."""
    return [(float(n), float(3 * n**-exponent)) for n in range(every, images + 1, every)]


@pytest.mark.parametrize("exponent", [0.05, 0.3, 1.0, -0.2])
def test_the_trend_of_a_power_law_is_its_exponent(exponent):
    found = trend(falling(exponent))
    assert found.exponent == pytest.approx(exponent) and found.error == pytest.approx(0, abs=1e-9)
    assert found.of_doubling == pytest.approx(1 - 2**-exponent)
    assert found.of_more(1000, 1000) == pytest.approx(found.of_doubling)
    assert exponent_of(found.of_doubling) == pytest.approx(exponent)


def test_the_error_of_the_trend_is_the_spread_of_slopes_over_draws_of_noise():
    """Of 400 draws: within a tenth, three times the error of such a spread (1 / sqrt(800))."""
    found, at = [], np.arange(20, 1001, 20)
    for draws in np.random.default_rng(1).normal(size=(400, len(at))):
        found.append(trend(list(zip(at, at**-0.5 * np.exp(0.05 * draws), strict=True))))
    assert np.std([each.exponent for each in found]) == pytest.approx(np.mean([each.error for each in found]), rel=0.1)


def test_of_a_score_that_rises_to_one_the_rest_is_judged():
    assert rest_of("eval/cosine", [(8.0, 0.75)]) == [(8.0, 0.25)] and rest_of("val/loss", [(8.0, 3.0)]) == [(8.0, 3.0)]
