"""A network that is followed: counted once, timed a few times, and then its last answer stands in."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from darkroom.tools.plan import meter
from models.generators.codes_made import network

STEPS = 30


class Slow(nn.Linear):
    """A linear map that takes 0.01 s an image on its clock."""

    def __init__(self, clock):
        super().__init__(12, 12)
        self.clock, self.calls = clock, []

    def forward(self, images):
        self.calls.append(len(images))
        self.clock.now += 0.01 * len(images)
        return super().forward(images)


class Outer(nn.Module):
    """A network around another."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, images):
        return self.inner(images)


@pytest.fixture
def slow(monkeypatch):
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(meter, "clock", lambda: clock.now)
    return Slow(clock)


@pytest.mark.parametrize("inside", [False, True])
def test_a_sampler_calls_its_network_a_few_times_and_the_whole_is_known(slow, inside):
    network, found = Outer(slow) if inside else slow, meter.Meter()
    with found.watching(), torch.no_grad():
        x = torch.zeros(4, 12)
        for _ in range(STEPS):
            x = network(x)
    assert slow.calls == [4] * (1 + meter.TIMED)
    assert slow.clock.now + found.spared == pytest.approx(STEPS * 4 * 0.01)
    assert found.flops == STEPS * 2 * 4 * 12 * 12 and found.parameters == 12 * 12 + 12
    assert found.weights == 4 * (12 * 12 + 12) and found.peak == 2 * 4 * 4 * 12
    assert "forward" not in vars(network) and network(x) is not None and slow.calls[-1] == 4


def test_a_long_call_is_timed_once_and_other_shapes_are_other_calls(slow):
    found = meter.Meter()
    with found.watching(), torch.inference_mode():
        for images in [10] * 5 + [2] * 5:
            assert slow(torch.zeros(images, 12)).shape == (images, 12)
    assert slow.calls == [10] * 2 + [2] * 3
    assert slow.clock.now + found.spared == pytest.approx(5 * 0.1 + 5 * 0.02)


def test_codes_after_a_cache_are_calls_of_one_shape():
    model, found = network(), meter.Meter()
    with found.watching(), torch.no_grad():
        _, caches = model.begin(None, 2)
        for place in range(12):
            model.next(torch.zeros(2, dtype=torch.int64), place, caches)
    assert caches[0].length == 1 + 1 + meter.TIMED and found.flops > 0


def test_calls_with_gradients_are_left_alone(slow):
    found = meter.Meter()
    with found.watching():
        for _ in range(5):
            slow(torch.zeros(4, 12)).sum().backward()
    assert len(slow.calls) == 5 and found.parameters is None and found.flops == 0


def test_an_answer_that_stands_in_may_be_written_to(slow):
    found = meter.Meter()
    with found.watching(), torch.no_grad():
        answers = [slow(torch.ones(4, 12)) for _ in range(6)]
        answers[-2].zero_()
    assert torch.equal(answers[-1], answers[0]) and answers[-1].any()


def test_after_forgetting_a_network_answers_itself(slow):
    found = meter.Meter()
    with found.watching(), torch.no_grad():
        for _ in range(5):
            slow(torch.zeros(4, 12))
        found.forget()
        slow.calls.clear()
        slow(torch.zeros(4, 12))
    assert slow.calls == [4]
