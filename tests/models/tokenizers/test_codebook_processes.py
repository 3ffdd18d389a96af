"""Two processes train the codebook that one does: all latents of the update move it, whoever has computed them."""

import json

import pytest
import torch

from forks import in_ranks
from models.tokenizers.codebooks import member, recipe


def trained(folder, processes, kind):
    in_ranks(member, folder, processes, kind)
    return json.loads((folder / "records.json").read_text()), torch.load(folder / "weights.pt", weights_only=True)


@pytest.mark.parametrize("kind", ["vq", "lfq", "vq_ar"])
def test_two_processes_train_the_codebook_that_one_does(tmp_path, kind):
    """To a thousandth of the way that each tensor went: k-means first, then averages and codes that died.

    Records to 3e-3 relative: the entropies of `lfq`, at inverse temperature 100, magnify rounding.
    """
    (records, alone), (shared, two) = (trained(tmp_path / str(count), count, kind) for count in (1, 2))
    start = recipe(kind).model.state_dict()
    for mine, theirs in zip(records, shared, strict=True):
        assert theirs == pytest.approx(mine, rel=3e-3, abs=1e-5)
    for name, value in alone.items():
        way = torch.dist(value.float(), start[name].float())
        assert torch.dist(two[name].float(), value.float()) <= 1e-3 * way + 1e-6, name
