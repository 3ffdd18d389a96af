"""Sampling codes: what min-p keeps, the law of the draws, the cache, and whose noise an image has."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from darkroom.models.sampled_codes import gumbel, min_p_filter
from darkroom.models.tokenizers.vq_ar.generate import generate, sample_codes
from models.tokenizers.making_vq_ar import network

CPU = torch.device("cpu")


def choice(**changes):
    values = {"seed": 3, "images": 5, "batch": 4, "min_p": 0.05, "temperature": 1.0, "guidance": 1.0}
    return SimpleNamespace(**{**values, **changes})


def sharp(classes=0, **changes):
    """Return a network whose predictions differ: an untrained one says nearly the same everywhere."""
    model = network(classes=classes, **changes)
    with torch.no_grad():
        model.to_prediction.weight.mul_(20)
        model.start.normal_()
        model.quantiser.codebook = 3 * torch.randn(12, 8)
    return model.eval()


def test_min_p_is_the_definition_in_float64():
    torch.manual_seed(0)
    logits = 3 * torch.randn(50, 9, dtype=torch.float64)
    for min_p in (0.0, 0.1, 0.25, 1.0):
        kept = min_p_filter(logits, min_p)
        p = logits.exp() / logits.exp().sum(-1, keepdim=True)
        for row in range(50):
            expected = [k for k in range(9) if p[row, k] >= min_p * max(p[row]) - 1e-15]
            assert kept[row].isfinite().nonzero()[:, 0].tolist() == expected
        assert torch.equal(kept[kept.isfinite()], logits[kept.isfinite()])
    assert min_p_filter(logits, 1.0).isfinite().sum() == 50


def test_the_draws_follow_the_softmax_of_what_is_left():
    """100,000 draws of one code: shares within five standard errors of softmax(l / temperature) over the kept codes."""
    logits = torch.tensor([2.0, 1.0, 0.5, -3.0], dtype=torch.float64)
    noise = torch.from_numpy(gumbel(0, "test", range(100_000), 2, 5, 4))
    drawn = (min_p_filter(logits, 0.1) / 1.5 + noise).argmax(-1)
    expected = (torch.where(logits > -3, logits, -torch.inf) / 1.5).softmax(-1)
    found = torch.bincount(drawn, minlength=4).double() / 100_000
    assert torch.all((found - expected).abs() <= 5 * (expected * (1 - expected) / 100_000).sqrt())


@pytest.mark.parametrize(("classes", "guidance"), [(0, 1.0), (3, 2.5)])
def test_codes_with_the_cache_are_those_without(classes, guidance):
    model, labels = sharp(classes), torch.arange(6) % max(1, classes)
    settings = choice(guidance=guidance)
    cached, plain = (sample_codes(model, settings, range(6), labels, cache=cache) for cache in (True, False))
    assert torch.equal(cached, plain)
    assert cached.shape == (6, 4, 4) and len(cached.unique()) > 6


def test_codes_with_the_cache_are_those_without_over_many_tokens():
    """256 of them: what the cache forgets of the first half changes codes of the second."""
    model, labels = sharp(3, patch=1, head_dim=8), torch.arange(2)
    settings = choice(guidance=2.5, temperature=2.0, min_p=0.0)  # an untrained network would repeat one code
    cached, plain = (sample_codes(model, settings, [4, 7], labels, cache=cache) for cache in (True, False))
    assert torch.equal(cached, plain)
    assert cached.shape == (2, 16, 16) and len(cached[:, 8:].unique()) > 6


def test_logits_with_the_cache_are_those_of_the_forward_pass():
    """The same as training sees: prediction i of the forward pass comes from the codes before i."""
    model = sharp()
    x = torch.rand(2, 3, 16, 16) * 2 - 1
    with torch.no_grad():
        made = model(x, torch.zeros(2, dtype=torch.long), 0.5, False)
        inputs, cache = model.start[[0, 0]][:, None], None
        for token in range(model.tokens):
            logits, cache = model.logits(inputs, cache)
            assert torch.allclose(logits, -1.5 * torch.cdist(made.prediction[:, token], model.codebook), atol=1e-4)
            inputs = model.to_token(model.codebook[made.codes[:, token]])[:, None]


def test_guidance_moves_away_from_no_class():
    """At guidance 0 the class does not matter; at a high one the classes differ more than at 1.

    The temperature is high, since at a low one all first codes differ at 1 already.
    """
    model, numbers = sharp(2), range(32)
    one, other = torch.zeros(32, dtype=torch.long), torch.ones(32, dtype=torch.long)

    def apart(guidance):
        settings = choice(guidance=guidance, batch=32, temperature=10.0, min_p=0.0)
        made = [sample_codes(model, settings, numbers, labels) for labels in (one, other)]
        return (made[0] != made[1])[:, 0, 0].sum().item()  # the first codes: later ones follow from them, too

    assert apart(0.0) == 0 < apart(1.0) < apart(4.0)


def test_an_image_follows_from_seed_and_number_alone():
    model = sharp(3)
    whole = np.concatenate(list(generate(model, choice(), CPU)))
    few = np.concatenate(list(generate(model, choice(images=2), CPU)))
    other = np.concatenate(list(generate(model, choice(seed=4), CPU)))
    assert whole.shape == (5, 3, 16, 16) and whole.dtype == np.uint8
    assert np.array_equal(whole[:2], few) and not np.array_equal(whole, other)
    assert len(np.unique(whole.reshape(5, -1), axis=0)) == 5


def test_noise_differs_by_image_and_token():
    assert np.array_equal(gumbel(0, "test", [5, 9], 3, 16, 7)[1], gumbel(0, "test", [9], 3, 16, 7)[0])
    found = {gumbel(0, "test", [number], token, 16, 7).tobytes() for number in range(4) for token in range(16)}
    assert len(found) == 64
