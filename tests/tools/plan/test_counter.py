"""Live bytes and operations, by hand."""

import pytest
import torch

from darkroom.tools.plan.meter import Counter


def test_the_peak_is_what_lives_at_once_and_views_are_free():
    known = torch.ones(1000)  # 4,000 bytes, not counted
    with Counter([known]) as live:
        one = known * 2
        assert live.peak == 4000
        one.view(10, 100).add_(1)
        known.mul_(2)
        assert live.peak == 4000
        two = one + 1
        assert live.peak == 8000
        del one
        three = two + 1
        assert live.peak == 8000
        four = three + 1
    assert live.peak == 12000 and len(four) == 1000


def test_meta_tensors_are_told_apart():
    known = torch.ones(1000, device="meta")
    with Counter([known]) as live:
        kept = [known + 1, known + 2]
    assert live.peak == 8000 and len(kept) == 2


@pytest.mark.parametrize("grad", [True, False])
def test_operations_of_a_linear_layer(grad):
    """y = x Wᵀ: 2 · N · in · out; the same again for W's gradient, and in inference mode, where it arrives whole."""
    layer, images = torch.nn.Linear(12, 5), torch.ones(8, 12)
    with torch.inference_mode(not grad), Counter() as counter:
        made = layer(images)
        assert counter.flops == 2 * 8 * 12 * 5
        if grad:
            made.sum().backward()
            assert counter.flops == 2 * 2 * 8 * 12 * 5
