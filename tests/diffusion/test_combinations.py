"""Every objective with every network and sampler: what `darkroom check` accepts trains and samples, and what it refuses
it refuses by the names of the keys that do not fit each other.

The keys and their values are those of the settings; of all combinations each value of each key, and, slowly, every pair
of two keys' values, and random ones of all keys.
"""

from functools import cache
from pathlib import Path

import pytest

from darkroom.check import check
from darkroom.diffusion.settings import SOLVERS
from darkroom.errors import DarkroomError
from darkroom.models.decoder.settings import UNetSampling
from darkroom.models.decoder.unet_settings import Grids, UNetDiffusion
from darkroom.models.decoder.unet_settings import Model as UNetModel
from darkroom.models.generators.dit.settings import DiTDiffusion, DiTGenerated, DiTSampling
from darkroom.models.generators.dit.settings import Model as DiTModel
from darkroom.models.prior.settings import Evaluate, PriorDiffusion, PriorSampling
from darkroom.params.stage import read_yaml
from diffusion import tiny_networks
from diffusion.combinations import Search, axes_of, named
from helpers import DIGITS

ROOT = Path(__file__).resolve().parents[2]
NETWORKS = {"dit": tiny_networks.dit, "unet": tiny_networks.unet, "prior": tiny_networks.prior}
GRIDS = ("solver", "guidance")  # of the samples while training
SPACES = [
    (network, objective)
    for network in NETWORKS
    for objective in SOLVERS
    if network == "dit" or objective != "mean_flow"
]
COVERED = ["values", pytest.param("pairs", marks=pytest.mark.slow)]
CHOICES = {"solver", "path", "flow_target", "flow_weight", "target", "loss", "variance", "spacing", "condition"}
# What a prior cannot have, whatever else is set: one key is at fault.
NEVER = {
    ("prior", "train_prior.diffusion.variance", "learned"),
    ("prior", "train_prior.diffusion.variance", "learned_range"),
    ("prior", "sample_text.prior.guidance_channels", 1),
}


def axes(network, objective):
    """Return the keys of a network, of its objective and of its sampling, with their values."""
    section = {"dit": "train_generator.dit", "unet": "train_decoder.unets.base", "prior": "train_prior"}[network]
    if network == "dit":
        return {
            **axes_of(f"{section}.diffusion", DiTDiffusion, objective),
            **axes_of(f"{section}.model", DiTModel, objective),
            **axes_of(f"{section}.sampling", DiTSampling, objective, GRIDS),
            **axes_of("sample_generator.dit", DiTGenerated, objective),
            "train_generator.captions": ["data/none", "data/shards"],
            "train_generator.embeddings": ["data/none", "data/embeddings"],
            "sample_generator.common.labels": ["balanced", "frequency"],
            "embed_clip.encodings": [False, True],
            "train_clip.source": ["trained", "none"],
        }
    if network == "unet":
        return {
            **axes_of(f"{section}.diffusion", UNetDiffusion, objective),
            "train_decoder.timesteps": [8, 4, 3],
            **axes_of(f"{section}.model", UNetModel, objective),
            **axes_of(f"{section}.grids", Grids, objective, GRIDS),
            **axes_of("sample_decoder.common", UNetSampling, objective),
            f"{section}.embeddings": ["data/none", "data/embeddings"],
            f"{section}.clip": ["data/none", "models/clip"],
            "embed_clip.encodings": [False, True],
            "sample_decoder.pictures.inpainted": [0, 2],
        }
    return {
        **axes_of(f"{section}.diffusion", PriorDiffusion, objective),
        **axes_of(f"{section}.evaluate", Evaluate, objective, GRIDS),
        **axes_of("sample_text.prior", PriorSampling, objective),
        "embed_clip.encodings": [False, True],
    }


@pytest.fixture(scope="module")
def params():
    """Return the preset `digits` with small networks."""
    return tiny_networks.values_of(read_yaml(DIGITS), tiny_networks.SMALL)


@pytest.fixture(scope="module")
def searched(params):
    """Return what searches the combinations of a network with an objective, each once."""

    def refusal(row):
        try:
            tiny_networks.accepted(tiny_networks.values_of(params, row))
        except DarkroomError as error:
            return str(error)
        return None

    @cache
    def search(network, objective, covered, seed=0):
        made = Search(axes(network, objective), refusal, seed)
        rows = {"values": made.valuewise, "pairs": made.pairwise, "nothing": list}
        return made, rows[covered]()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(check, "whole", cache(check.whole))  # the same schema a thousand times
        yield search


def runs(network, params, row):
    """Train and sample as a row says."""
    losses, sampled = NETWORKS[network](tiny_networks.accepted(tiny_networks.values_of(params, row)))
    assert losses and all(abs(value) < 1e6 for value in losses.values()), (losses, row)  # NaN is not
    for found, shape in sampled:
        assert found.shape == shape and found.isfinite().all() and found.std() > 0, row


@pytest.mark.parametrize("covered", COVERED)
@pytest.mark.parametrize(("network", "objective"), SPACES)
def test_what_is_accepted_trains_and_samples(network, objective, covered, searched, params):
    """All values, or all pairs of values."""
    search, rows = searched(network, objective, covered)
    assert len(rows) >= max(len(values) for values in search.axes.values())
    for row in rows:
        runs(network, params, row)


@pytest.mark.parametrize("covered", COVERED)
@pytest.mark.parametrize(("network", "objective"), SPACES)
def test_what_is_refused_names_the_keys_that_do_not_fit(network, objective, covered, searched):
    """Two at least, and another value of one of them helps."""
    search, _ = searched(network, objective, covered)
    assert search.refusals
    for sentence, row in search.refusals.items():
        keys = named(sentence, row)
        if {(network, key, row[key]) for key in keys} <= NEVER:
            continue
        assert len(keys) >= 2, sentence
        others = ({**row, key: value} for key in keys for value in search.all[key] if value != row[key])
        assert any(sentence not in (search.refusal(other) or "") for other in others), sentence
    barred = {(network, *value) for pair in search.apart if len(pair) == 1 for value in pair}
    assert {each for each in NEVER if each[0] == network and each[1] in search.all} <= barred


@pytest.mark.parametrize("network", NETWORKS)
def test_each_solver_is_sampled_with_its_objective_alone(network, searched):
    """The search is not so strict that it leaves out what is there."""
    section = {"dit": "sample_generator.dit", "unet": "sample_decoder.common", "prior": "sample_text.prior"}[network]
    for objective in (other for each, other in SPACES if each == network):
        _, rows = searched(network, objective, "values")
        assert {row[f"{section}.solver"] for row in rows} == set(SOLVERS[objective])


@pytest.mark.slow
@pytest.mark.parametrize(("network", "objective"), SPACES)
def test_every_combination_trains_and_samples(network, objective, searched, params):
    """Of path, target, loss, variance, solver, spacing and condition all; of the other keys any."""
    search, _ = searched(network, objective, "nothing", seed=1)
    grids = ("train_generator.dit.sampling.", "train_decoder.unets.base.grids.", "train_prior.evaluate.")
    keys = [key for key in search.axes if key.rpartition(".")[2] in CHOICES and not key.startswith(grids)]
    for row in search.product(keys):
        runs(network, params, row)
