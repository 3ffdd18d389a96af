"""Every network learns every objective and is sampled by every solver that fits it, also one that a test adds.

The objective that is added is a class in a file, a line in `OBJECTIVES` and its solvers in `settings.SOLVERS`.
"""

import re
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from additions.objective import Arc
from darkroom.diffusion import objectives, settings
from darkroom.diffusion.objectives import objective_of, stored_objective
from darkroom.diffusion.scalers import EmbeddingScaler, LatentScaler
from darkroom.diffusion.settings import READ_WITH_OBJECTIVE, SOLVERS, Diffusion, Sampling, misfit
from darkroom.models.decoder.sample import CascadeStage, SampleRequest, sample_stage
from darkroom.models.decoder.settings import UNetSampling
from darkroom.models.generators.dit.config import DiTConfig
from darkroom.models.generators.dit.network import DiT
from darkroom.models.generators.dit.recipe import DiTRecipe
from darkroom.models.generators.dit.settings import DiTDiffusion, DiTSampling
from darkroom.models.prior.network import Prior, PriorConfig, PriorNetwork, sample_prior
from darkroom.models.prior.recipe import PriorRecipe
from darkroom.models.prior.settings import PriorDiffusion, PriorSampling
from darkroom.params.section import description
from darkroom.training.recipe import Batch
from models.decoder import small_decoder

POSITIONS = list(range(16))
# What `diffusion` may say, but for the keys that weight a loss alone.
PATHS = {
    f"flow, {path}, {target}": {"objective": "flow", "path": path, "flow_target": target}
    for path in ("linear", "gvp", "vp")
    for target in ("velocity", "eps", "x0", "score")
    if (path, target) != ("linear", "velocity")  # which is "flow"
}
VARIANTS = {
    "flow": {"objective": "flow"},
    **PATHS,
    "flow, weighted": {
        "objective": "flow", "flow_target": "x0", "flow_weight": "velocity_clamped", "time_shift": 2.0,
    },
    "gaussian": {"objective": "gaussian", "variance": "fixed_small"},
    **{f"gaussian, {target}": {"objective": "gaussian", "target": target} for target in ("x0", "v")},
    **{
        f"gaussian, {variance}": {"objective": "gaussian", "target": "eps", "variance": variance, "bound_weight": 1.0}
        for variance in ("fixed_large", "learned", "learned_range")
    },
    "gaussian, kl": {"objective": "gaussian", "variance": "learned_range", "loss": "kl"},
    "gaussian, rescaled_kl": {"objective": "gaussian", "variance": "fixed_small", "loss": "rescaled_kl"},
    "arc": {"objective": "arc"},
}  # fmt: skip
# Those of the U-Nets and the prior, which read the same functions as the transformer.
FEW = ("flow", "gaussian", "gaussian, learned_range", "arc")


@pytest.fixture
def arc(monkeypatch):
    """Add an objective as its author would."""
    monkeypatch.setitem(objectives.OBJECTIVES, "arc", Arc.of)
    monkeypatch.setitem(settings.SOLVERS, "arc", ("euler",))


def random(*shape):
    return torch.from_numpy(np.random.default_rng(0).standard_normal(shape).astype(np.float32))


def filled(model):
    """Return a network that predicts something: its last layer is zero at first."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.03 * torch.randn_like(parameter))
    return model


def dit(objective):
    diffusion = DiTDiffusion(normalise="channel", label_dropout=0.1).model_copy(update=VARIANTS[objective])
    sampling = DiTSampling(solver="euler", steps=4, guidance=2.0)
    torch.manual_seed(0)
    model = filled(DiT(DiTConfig(2, 4, 5, 32, 1, 2, 2, learned_variance=diffusion.learns_variance)))
    tokenizer = SimpleNamespace(latent_shape=(2, 4, 4), decode=lambda z: z)
    recipe = DiTRecipe(model, diffusion, 9, [], [], LatentScaler([0.0] * 2, [1.0] * 2), tokenizer, sampling)
    data = {"mean": random(16, 2, 4, 4), "labels": torch.arange(16) % 5}

    def sampled(solver):
        return recipe.sampler([0, 1], torch.tensor([3, 4]), 1, sampling.model_copy(update={"solver": solver}))

    return recipe, Batch(np.array(POSITIONS), data), sampled, (2, 2, 4, 4)


def unet(objective):
    section = small_decoder.section(diffusion={"variance": "fixed_small"})
    diffusion = section.diffusion.model_copy(update=VARIANTS[objective])
    recipe = small_decoder.recipe(section.model_copy(update={"diffusion": diffusion}))
    data = {name: torch.as_tensor(value[:16]) for name, value in small_decoder.Rows().all.items()}
    metadata = {"embedding_mean": small_decoder.MEAN, "embedding_std": small_decoder.STD}

    def sampled(solver):
        how = UNetSampling(
            solver=solver, steps=4, guidance=2.0, threshold="clip", percentile=1.0, embedding_noise=0.0, low_noise=0.0
        )
        stage = CascadeStage("base", recipe.model.eval(), recipe.objective, True, metadata)
        request = SampleRequest([0, 1], random(2, 6), random(2, 4, 5))
        return sample_stage(stage, how, request, None, 0, torch.device("cpu"))

    return recipe, Batch(np.array(POSITIONS), data), sampled, (2, 1, 8, 8)


def prior(objective):
    diffusion = PriorDiffusion(text_dropout=0.1).model_copy(update=VARIANTS[objective])
    torch.manual_seed(0)
    network = filled(PriorNetwork(PriorConfig(8, None, 32, 1, 2)))
    network.set_scaler(EmbeddingScaler([0.0] * 8, [1.0] * 8))
    made = Prior(network, objective_of(diffusion, diffusion.timesteps), normalised=False)
    recipe = PriorRecipe(made, diffusion, 9, [], [])

    def sampled(solver):
        how = PriorSampling(solver=solver, steps=4, guidance=2.0, candidates=2, batch=3)
        return sample_prior(made, random(2, 8), None, how, 0, [0, 1])

    return recipe, Batch(np.array(POSITIONS), {"image": random(16, 8), "text": random(16, 8)}), sampled, (2, 8)


NETWORKS = [dit, unet, prior]


CASES = [(build, name) for build in NETWORKS for name in VARIANTS if build is dit or name in FEW]
CASES.remove((prior, "gaussian, learned_range"))  # it has one output: tests/models/prior
# What a path and a target mean is in test_interpolants.
UNLEARNED = PATHS.keys() - {"flow, gvp, eps", "flow, vp, score", "flow, linear, x0", "flow, gvp, x0"}
LEARNED = [case for case in CASES if case[1] not in UNLEARNED]
SOLVED = {
    **dict.fromkeys(VARIANTS, ()),  # for those whose loss alone is another
    **dict.fromkeys((*PATHS, "flow, weighted", "arc"), ("euler",)),
    **dict.fromkeys(("gaussian, x0", "gaussian, v"), ("ddim",)),
    **dict.fromkeys(("gaussian, fixed_large", "gaussian, learned", "gaussian, learned_range"), ("ddpm",)),
    **dict.fromkeys(("flow", "flow, vp, score"), SOLVERS["flow"]),
    "gaussian": SOLVERS["gaussian"],
}
SAMPLED = [(*case, solver) for case in CASES for solver in SOLVED[case[1]]]


@pytest.mark.parametrize(("build", "objective"), LEARNED)
def test_every_network_learns_every_objective(build, objective, arc):
    """15 updates on one batch, always under the same noise: the loss falls."""
    recipe, batch, _, _ = build(objective)
    optimizer = torch.optim.Adam(recipe.model.parameters(), lr=6e-3)
    losses = []
    for _ in range(15):
        loss = recipe.loss(batch)["loss"]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.8 * losses[0]
    assert recipe.validate(batch)["loss"].shape == (16,)


@pytest.mark.parametrize(("build", "objective", "solver"), SAMPLED)
def test_every_network_is_sampled_by_every_solver_that_fits(build, objective, solver, arc):
    """Twice the same, guided, of finite numbers."""
    _, _, sampled, shape = build(objective)
    found = sampled(solver)
    assert found.shape == shape and found.isfinite().all() and found.std() > 0
    assert torch.equal(found, sampled(solver))


@pytest.mark.parametrize(
    ("objective", "solver", "steps", "key"),
    [
        ("flow", "ddim", 5, "solver"),
        ("flow", "heun", 5000, None),
        ("gaussian", "euler", 5, "solver"),
        ("gaussian", "ddim", 100, None),
        ("gaussian", "ddim", 101, "steps"),
    ],
)
def test_what_does_not_fit_is_found(objective, solver, steps, key):
    found = misfit(Sampling(solver=solver, steps=steps, guidance=1.0), Diffusion(objective=objective), 100)
    assert (None if found is None else found.key) == key


def test_keys_of_one_objective_are_known_by_their_descriptions():
    """As the table has it, by which another value under another objective is refused."""
    fields = [name for name in DiTDiffusion.model_fields if name != "objective"]
    firsts = {name: re.split(r",\s*", description(DiTDiffusion, name).partition(":")[0]) for name in fields}
    said = {name: [word for word in words if word in SOLVERS] for name, words in firsts.items()}
    assert {name: ("objective", *words) for name, words in said.items() if words} == READ_WITH_OBJECTIVE
    with pytest.raises(ValueError, match="min_snr is only read with objective gaussian, but objective is flow"):
        DiTDiffusion(objective="flow", min_snr=5.0)


def test_a_manifest_tells_what_the_output_means():
    written = Diffusion(objective="gaussian", target="v", schedule="linear", variance="learned_range")
    made = stored_objective({"timesteps": 50, **written.prediction()}, "flow")
    assert (made.target, made.outputs, made.duration) == ("v", 2, 50)
    assert np.array_equal(made.schedule.betas, objective_of(written, 50).schedule.betas)
    assert stored_objective(Diffusion(objective="flow").prediction(), "gaussian").duration == 1
    assert stored_objective({}, "flow").duration == 1  # of before manifests named the objective
