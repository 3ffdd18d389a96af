"""CLIP's recipe: its loss and its gradients, whatever pieces and processes an update comes in."""

import math
import os
import signal
from itertools import product

import numpy as np
import pytest
import torch

from darkroom.errors import DarkroomError
from darkroom.training.loop import train
from forks import in_ranks
from helpers import run, training
from models.clip.clips import batch_of, gradients, member, recipe
from training.toy import curves, places, weights


def oracle(image, text, scale, captions):
    """Return the mean loss in float64, pair by pair."""
    cosines = scale * image @ text.T
    total = 0.0
    for i in range(len(captions)):
        same = [j for j in range(len(captions)) if captions[j] == captions[i]] if captions is not None else [i]
        for logits in (cosines[i], cosines[:, i]):
            log_sum = math.log(sum(math.exp(value) for value in logits))
            total -= sum(logits[j] - log_sum for j in same) / len(same) / 2
    return total / len(cosines)


@pytest.mark.parametrize("equal", ["positives", "negatives"])
def test_the_loss_is_the_formula(equal):
    made = recipe(equal)
    batch = batch_of(range(12))
    with torch.no_grad():
        image, text = made.model.encode_image(_pixels(batch)), made.model.encode_text(batch.data["tokens"])
    image, text = (each.double().numpy() for each in (image, text))
    image, text = (each / np.sqrt((each**2).sum(axis=1, keepdims=True)) for each in (image, text))
    captions = batch.data["captions"].tolist() if equal == "positives" else list(range(12))
    expected = oracle(image, text, 1 / 0.07, captions)
    assert made.loss(batch)["loss"].item() == pytest.approx(expected, rel=1e-5)
    assert made.validate(batch)["loss"].mean().item() == pytest.approx(expected, rel=1e-5)


def _pixels(batch):
    from darkroom.models.clip.network import preprocessed

    return preprocessed(batch.data["images"], 8)


def test_captions_that_come_twice_are_computed_once_and_change_nothing():
    for merge in (True, False):
        made, seen = recipe(merge=merge, dtype=torch.float64), []
        made.model.token_embedding.register_forward_hook(lambda *call, seen=seen: seen.append(len(call[1][0])))
        found = gradients(made, batch_of(range(12)), None)
        if merge:
            merged = found
        assert seen == [4 if merge else 12]
    assert found[0] == pytest.approx(merged[0], rel=1e-12)
    for name, value in found[1].items():
        torch.testing.assert_close(merged[1][name], value, rtol=1e-9, atol=1e-12, msg=name)


@pytest.fixture(scope="module", params=["positives", "negatives"])
def alone(request):
    """Loss and gradients of one pass over the whole update, by automatic differentiation alone."""
    return request.param, gradients(recipe(request.param, dtype=torch.float64), batch_of(range(12)), None)


def _require_equal(found, expected):
    assert found[0] == pytest.approx(expected[0], rel=1e-12)
    for name, value in expected[1].items():
        torch.testing.assert_close(found[1][name], value, rtol=1e-9, atol=1e-12, msg=name)
    assert expected[1]["logit_scale"].abs() > 1e-4


@pytest.mark.parametrize(("alone", "micro"), [("positives", 1), ("positives", 5), ("negatives", 5)], indirect=["alone"])
def test_pieces_have_the_gradient_of_the_whole(alone, micro):
    """To the rounding of float64; the last piece of 5 and 5 has but two images."""
    equal, expected = alone
    _require_equal(gradients(recipe(equal, dtype=torch.float64), batch_of(range(12)), micro), expected)


@pytest.mark.parametrize(
    ("alone", "micro"),
    [
        ("positives", 4),
        *(
            pytest.param(equal, micro, marks=pytest.mark.slow)
            for equal, micro in product(["positives", "negatives"], [4, None, 2])
            if (equal, micro) != ("positives", 4)
        ),
    ],
    indirect=["alone"],
)
def test_processes_have_the_gradient_of_the_whole(alone, tmp_path, micro):
    """Also where each has its share in pieces: of 4 and 2 images."""
    equal, expected = alone
    in_ranks(member, tmp_path / "two", 2, micro, equal)
    found = torch.load(tmp_path / "two" / "found.pt", weights_only=True)
    _require_equal((found["loss"], found["gradients"]), expected)


def test_the_next_update_is_not_taken_for_the_last():
    made = recipe(dtype=torch.float64)
    for rows in (range(12), range(11, -1, -1)):
        made.model.zero_grad()
        with torch.no_grad():
            made.model.logit_scale += 0.1
        found = gradients(made, batch_of(rows, np.arange(12)), 4)
        made.model.zero_grad()
        _require_equal(found, gradients(made, batch_of(rows, np.arange(12)), None))


def test_validation_in_pieces_is_that_of_the_whole_batch():
    made, batch = recipe(), batch_of(range(12))
    with torch.no_grad():
        whole = made.validate(batch)["loss"]
        pieces = torch.cat([made.validate(piece)["loss"] for piece in batch.split(5)])
    torch.testing.assert_close(pieces, whole)


def test_the_scale_stays_at_a_hundred():
    made = recipe()
    with torch.no_grad():
        made.model.logit_scale.fill_(9.0)
    made.phases[0].after(batch_of(range(12)))
    assert made.model.logit_scale.exp().item() == pytest.approx(100.0)


def test_it_learns_and_a_stopped_training_continues_bit_for_bit(tmp_path):
    settings = training(images=48, batch=12, learning_rate=0.003)
    whole = train(recipe(), settings, run(), places(tmp_path / "whole"))
    assert whole.records[-1]["train/loss"] < whole.records[0]["train/loss"]
    hook = lambda seen: os.kill(os.getpid(), signal.SIGTERM) if seen == 24 else None  # noqa: E731
    with pytest.raises(SystemExit):
        train(recipe(hook=hook), settings, run(), places(tmp_path))
    resumed = train(recipe(), settings, run(), places(tmp_path))
    assert weights(resumed) == weights(whole) and curves(tmp_path / "curves") == curves(tmp_path / "whole" / "curves")


RESNET = {"image_network": "resnet", "image_size": 32, "image_width": 2, "image_layers": 1}


def test_a_residual_network_continues_bit_for_bit_with_its_batch_norms(tmp_path):
    settings = training(images=36, batch=12, learning_rate=0.003)
    whole = train(recipe(**RESNET), settings, run(), places(tmp_path / "whole"))
    hook = lambda seen: os.kill(os.getpid(), signal.SIGTERM) if seen == 24 else None  # noqa: E731
    with pytest.raises(SystemExit):
        train(recipe(hook=hook, **RESNET), settings, run(), places(tmp_path))
    resumed = train(recipe(**RESNET), settings, run(), places(tmp_path))
    assert weights(resumed) == weights(whole)


def test_a_residual_network_in_pieces_is_refused(tmp_path):
    with pytest.raises(DarkroomError, match="batch norms need the whole batch"):
        train(recipe(**RESNET), training(images=24, batch=12), run(micro_batch=4), places(tmp_path))


@pytest.mark.parametrize("precision", ["bf16"])
def test_pieces_train_under_autocast(tmp_path, precision):
    """Weights cast without gradients would be kept, and nothing would learn."""
    made = recipe()
    before = {name: value.clone() for name, value in made.model.state_dict().items()}
    train(made, training(images=24, batch=12, precision=precision), run(micro_batch=4), places(tmp_path))
    for name, value in made.model.state_dict().items():
        assert not torch.equal(value, before[name]), name
