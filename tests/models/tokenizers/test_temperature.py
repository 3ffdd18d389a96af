"""The temperature of each rule against the loops that define them."""

import math

import pytest
from pydantic import ValidationError

from darkroom.models.tokenizers.dvae.relaxations import compounded, temperature
from darkroom.models.tokenizers.dvae.settings import Temperature


def rule(name, **changes):
    return Temperature(**{"rule": name, "start": 1.0, "minimum": 0.5, "rate": None, "images": None, **changes})


def upstream(start, minimum, rate, epoch, updates):
    """The temperature of each update, as dalle-pytorch's loop over epochs leaves it behind."""
    used, step, now = [], 0, start
    while len(used) < updates:
        for i in range(epoch):
            used.append(now)
            if i % 100 == 0:
                now = max(now * math.exp(-rate * step), minimum)
            step += 1
    return used[:updates]


@pytest.mark.parametrize("epoch", [1, 100, 101, 5000])
def test_compounding_is_upstreams_loop(epoch):
    expected = upstream(1.0, 0.5, 1e-6, epoch, 3000)
    settings = rule("compounding", rate=1e-6)
    found = [temperature(settings, update, 8, epoch) for update in range(3000)]
    assert found == pytest.approx(expected, rel=1e-12)


def test_compounding_reaches_a_half_after_11800_updates():
    settings = rule("compounding", rate=1e-6)
    falls = next(u for u in range(20_000) if temperature(settings, u, 8) == 0.5)
    assert falls == 11_801  # lowered after the update 11,800
    assert compounded(11_801) == compounded(11_801, 20_000) == sum(range(0, 11_801, 100))


def test_exponential_is_the_plain_one():
    settings = rule("exponential", rate=1e-6)
    assert temperature(settings, 0, 8) == 1.0
    assert temperature(settings, 100_000, 8) == pytest.approx(math.exp(-0.1), rel=1e-12)
    assert temperature(settings, 693_146, 8) > 0.5 == temperature(settings, 693_148, 8)


def test_cosine_counts_images():
    settings = rule("cosine", images=800)
    assert [temperature(settings, update, 8) for update in (0, 50, 100, 300)] == pytest.approx([1.0, 0.75, 0.5, 0.5])


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"rule": "cosine"}, "rule cosine needs images"),
        ({"rule": "exponential"}, "rule exponential needs rate"),
        ({"rule": "compounding", "rate": 0.1, "images": 5}, "images is only read with rule cosine"),
        ({"rule": "cosine", "images": 5, "rate": 0.1}, "rate is only read with rule compounding or exponential"),
        ({"rule": "cosine", "images": 5, "minimum": 2.0}, r"minimum \(2.0\) must not be above start \(1.0\)"),
    ],
)
def test_what_does_not_fit_is_refused(changes, said):
    with pytest.raises(ValidationError, match=said):
        rule(**{"name": changes.pop("rule"), **changes})
