"""With a discriminator, two processes train what one does: each turn, the penalty, and the weight of the update."""

import json

import pytest
import torch

from forks import in_ranks
from recipes.adversaries import member


def trained(folder, processes, micro=None):
    in_ranks(member, folder, processes, micro)
    return json.loads((folder / "records.json").read_text()), torch.load(folder / "weights.pt", weights_only=True)


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    return trained(tmp_path_factory.mktemp("alone") / "one", 1)


@pytest.mark.parametrize("micro", [None, 2])
def test_two_processes_train_what_one_does(tmp_path, alone, micro):
    """1e-3 relative: AdamW's first steps have the size of the rate, whatever the gradient, so rounding shows."""
    records, weights = trained(tmp_path / "two", 2, micro)
    for mine, theirs in zip(alone[0], records, strict=True):
        assert mine.keys() == theirs.keys()
        for name, value in mine.items():
            assert theirs[name] == pytest.approx(value, rel=1e-3, abs=1e-5), name
    for name, module in alone[1].items():
        for key, value in module.items():
            torch.testing.assert_close(weights[name][key], value, rtol=1e-3, atol=2e-4)
