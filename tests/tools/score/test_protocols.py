"""The named protocols of `darkroom score` beside the published formulas of their programs, on the same features."""

from pathlib import Path

import numpy as np
import pytest
import torch

from darkroom.cli import main
from darkroom.metrics.batches import Views
from darkroom.metrics.measure import Samples
from darkroom.tools.score.measure import BLOCKS, CONVENTIONS, measure, reference_of
from darkroom.tools.score.options import Request

D, PLACES, CLASSES = 12, 6, 5


def draw(seed: int, count: int, shift: float = 0.0) -> Views:
    draws = np.random.default_rng(seed)
    parts = (draws.normal(shift, 1, (count, width)).astype(np.float32) for width in (D, PLACES, CLASSES))
    return Views(*map(torch.from_numpy, parts))


def scored(protocol: str, made: Views, real: Views) -> dict[str, float]:
    return measure(Samples("inception", made, BLOCKS), reference_of("inception", real), CONVENTIONS[protocol].metrics)


def fid(made: torch.Tensor, real: torch.Tensor) -> float:
    """As NVlabs/edm, fid.py, and openai/guided-diffusion, evaluations/evaluator.py: a root of the product."""
    from scipy.linalg import sqrtm

    (mean, cov), (other, of_other) = ((x.double().numpy().mean(0), np.cov(x.double().numpy().T)) for x in (made, real))
    root = sqrtm(cov @ of_other)
    return float(np.square(mean - other).sum() + np.trace(cov + of_other - 2 * root).real)


def inception_score(logits: torch.Tensor, split: int = 5000) -> float:
    """As guided-diffusion's evaluator: exp of the mean divergence of splits of 5,000 images in their order."""
    scores = []
    for part in logits.double().softmax(1).split(split):
        p = part.numpy()
        scores.append(np.exp((p * (np.log(p) - np.log(p.mean(0)))).sum(1).mean()))
    return float(np.mean(scores))


def precision_and_recall(made: torch.Tensor, real: torch.Tensor, k: int = 3) -> tuple[float, float]:
    """As guided-diffusion's evaluator: whether an image lies in the ball of another to its third neighbour."""
    x, y = made.double(), real.double()
    radius = [torch.cdist(each, each).square().sort(1).values[:, k] * (1 + 1e-9) for each in (x, y)]
    across = torch.cdist(x, y).square()
    inside = (across <= radius[1]).any(1), (across <= radius[0][:, None]).any(0)
    return tuple(float(each.double().mean()) for each in inside)  # type: ignore[return-value]


@pytest.mark.parametrize("protocol", ["adm", "dit", "edm"])
def test_agrees_with_the_published_formula(protocol: str) -> None:
    made, real = draw(0, 300, 0.3), draw(1, 400)
    found = scored(protocol, made, real)
    assert found["fid"] == pytest.approx(fid(made.pool, real.pool), rel=1e-6)
    if protocol == "edm":  # it publishes no other number
        return
    assert found["sfid"] == pytest.approx(fid(made.spatial, real.spatial), rel=1e-6)  # type: ignore[arg-type]
    precision, recall = precision_and_recall(made.pool, real.pool)
    assert (found["precision"], found["recall"]) == pytest.approx((precision, recall), rel=1e-9)


def test_the_inception_score_is_of_splits_of_5000_in_their_order() -> None:
    made = draw(2, 7000)
    one, other = (
        measure(Samples("inception", made, BLOCKS), None, CONVENTIONS[name].metrics) for name in ("adm", "dit")
    )
    assert one == other
    expected = inception_score(made.logits)  # type: ignore[arg-type]
    assert one["inception_score_splits"] == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(
    ("option", "name"), [*(("--protocol", name) for name in CONVENTIONS), ("--convention", next(iter(CONVENTIONS)))]
)
def test_each_has_a_name_on_the_command_line(option: str, name: str, tmp_path: Path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    requests: list[Request] = []
    monkeypatch.setattr("darkroom.tools.score.command.score", requests.append)
    monkeypatch.chdir(tmp_path)
    assert main(["score", ".", "--against", ".", option, name]) == 0
    assert requests[0].convention == CONVENTIONS[name].name
