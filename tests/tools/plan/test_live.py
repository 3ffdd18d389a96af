"""Live bytes, by hand."""

import torch

from darkroom.tools.plan.live import LiveTensors


def test_the_peak_is_what_lives_at_once_and_views_are_free():
    known = torch.ones(1000)  # 4,000 bytes, not counted
    with LiveTensors([known]) as live:
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
    with LiveTensors([known]) as live:
        kept = [known + 1, known + 2]
    assert live.peak == 8000 and len(kept) == 2
