"""Paths, what can be predicted of them, and the solvers of flows: by formulas in float64, and on known densities."""

import math
from functools import cache

import numpy as np
import pytest
import torch

from darkroom.diffusion.flow import PATHS, Flow
from darkroom.diffusion.inversion import encode
from darkroom.diffusion.samplers import euler_maruyama, follow, multistep, sample
from darkroom.diffusion.settings import Diffusion, Sampling
from darkroom.diffusion.types import Denoised
from darkroom.errors import DarkroomError

TARGETS = ["velocity", "eps", "x0", "score"]


@pytest.mark.parametrize("name", PATHS)
def test_rates_are_the_derivatives(name):
    t, h = torch.linspace(0.05, 0.95, 19, dtype=torch.float64), 1e-6
    before, at, after = (PATHS[name](each) for each in (t - h, t, t + h))
    torch.testing.assert_close(at.alpha_rate, (after.alpha - before.alpha) / (2 * h), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(at.sigma_rate, (after.sigma - before.sigma) / (2 * h), rtol=1e-6, atol=1e-6)


def test_paths_by_hand():
    t = torch.tensor([0.25], dtype=torch.float64)
    assert [float(each) for each in PATHS["linear"](t)] == [0.75, 0.25, -1, 1]
    assert float(PATHS["gvp"](t).alpha) == pytest.approx(math.cos(math.pi / 8))
    log_alpha = -0.25 * 19.9 * 0.0625 - 0.05 * 0.25
    assert float(PATHS["vp"](t).alpha) == pytest.approx(math.exp(log_alpha))
    for name in ("gvp", "vp"):
        levels = PATHS[name](t)
        assert float(levels.alpha**2 + levels.sigma**2) == pytest.approx(1)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("target", TARGETS)
def test_a_perfect_answer_has_no_loss_and_gives_data_and_velocity_back(path, target):
    flow = Flow(path=path, target=target)
    x0, noise = torch.randn(2, 5, 3, 4, 4, dtype=torch.float64)
    t = torch.tensor([0.1, 0.3, 0.5, 0.7, 0.9], dtype=torch.float64)
    levels = PATHS[path](t[:, None, None, None])
    x, velocity = flow.add_noise(x0, noise, t), levels.alpha_rate * x0 + levels.sigma_rate * noise
    answer = {"velocity": velocity, "eps": noise, "x0": x0, "score": -noise / levels.sigma}[target]
    assert float(flow.losses(answer, x0, noise, x, t)["loss"].max()) == pytest.approx(0, abs=1e-5)
    found = flow.denoised(answer, x, t)
    torch.testing.assert_close(found.x0.double(), x0, rtol=2e-3, atol=2e-3)
    torch.testing.assert_close(found.velocity.double(), velocity, rtol=2e-3, atol=2e-2)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(("target", "weight"), [("eps", "velocity"), ("score", "velocity"), ("x0", "velocity_clamped")])
def test_the_weight_makes_it_the_loss_of_the_velocity(path, target, weight):
    weighted, plain = Flow(path=path, target=target, weight=weight), Flow(path=path)
    x0, noise = torch.randn(2, 3, 2, 4, 4)
    t = torch.tensor([0.2, 0.5, 0.8])
    x = plain.add_noise(x0, noise, t)
    answer = torch.randn_like(x0)
    said = weighted.denoised(answer, x, t).velocity
    torch.testing.assert_close(
        weighted.losses(answer, x0, noise, x, t)["loss"],
        plain.losses(said, x0, noise, x, t)["loss"],
        rtol=1e-4,
        atol=1e-4,
    )


# SiT's own time runs from noise to data: its rates of α and σ are those of these tables.
SITS = {
    "linear": lambda s: (s, 1 - s, 1, -1),
    "gvp": lambda s: (
        *(math.sin(math.pi * s / 2), math.cos(math.pi * s / 2)),
        *(math.pi / 2 * math.cos(math.pi * s / 2), -math.pi / 2 * math.sin(math.pi * s / 2)),
    ),
}


@pytest.mark.parametrize("path", SITS)
@pytest.mark.parametrize("target", ["eps", "score"])
@pytest.mark.parametrize("weight", ["velocity", "velocity_clamped", "likelihood"])
def test_a_weight_is_that_of_its_paper_up_to_the_ends_of_time(path, target, weight):
    """SiT: (d / σ)² and d / σ², d = σ² α' / α - σ σ', at any t. JiT clamps t."""
    times = [0.001, 0.01, 0.03, 0.5, 0.97, 0.99, 0.999]
    expected = []
    for t in times:
        alpha, sigma, alpha_rate, sigma_rate = SITS[path](1 - (min(max(t, 0.05), 0.95) if "clamped" in weight else t))
        drift = alpha_rate / alpha * sigma**2 - sigma * sigma_rate
        expected.append(drift / sigma**2 if weight == "likelihood" else (drift / sigma) ** 2)
    noise, t = torch.randn(len(times), 2, 3, 3), torch.tensor(times)
    flows = [Flow(path=path, target=target, weight=each) for each in (weight, "none")]
    weighted, plain = (each.losses(0 * noise, noise, noise, noise, t)["loss"] for each in flows)
    np.testing.assert_allclose((weighted / plain).numpy(), expected, rtol=2e-4)  # 1 - t in float32, near 1


@pytest.mark.parametrize(
    ("weight", "target", "remedy"),
    [
        ("velocity", "x0", "set flow_weight to velocity_clamped"),
        ("likelihood", "x0", "set flow_weight to velocity_clamped"),
        ("likelihood", "velocity", "set flow_weight to none"),
    ],
)
def test_a_weight_without_a_bound_or_a_meaning_is_refused(weight, target, remedy):
    with pytest.raises(ValueError, match=remedy):
        Diffusion(objective="flow", flow_target=target, flow_weight=weight)


def test_times_are_shifted_and_kept_from_where_an_answer_says_nothing():
    uniform = np.linspace(0, 0.999, 1000)
    plain, shifted = Flow().times(uniform), Flow(shift=3.0).times(uniform)
    torch.testing.assert_close(shifted, 3 * plain / (1 + 2 * plain))
    assert float(shifted.mean()) > float(plain.mean()) + 0.1
    for target in ("eps", "score"):
        times = Flow(target=target).times(np.array([0.0, 1 - 1e-9]))
        assert 1e-4 < float(times[0]) < 2e-3 and 0.998 < float(times[1]) < 0.9999
    made = Flow.of(Diffusion(objective="flow", path="gvp", flow_target="x0", time="uniform", time_shift=2.0), 1000)
    assert made == Flow(None, "gvp", "x0", 2.0)


# ----------------------------------------------------------------------------------------------------------------------
# Solvers, on a mixture of two Gaussians, whose best denoiser is known

CENTRES, WIDTH = (-1.0, 0.7), 0.25


def best(flow):
    """Return the denoiser that knows the density: E[x_0 | x_t], and the velocity that follows, in float64."""

    def denoise(x, t, before):
        levels = PATHS[flow.path](t.double()[:, None])
        variance = levels.alpha**2 * WIDTH**2 + levels.sigma**2
        log_weights = torch.stack([-((x - levels.alpha * c) ** 2) / (2 * variance) for c in CENTRES])
        weights = log_weights.softmax(0)
        means = torch.stack([c + levels.alpha * WIDTH**2 / variance * (x - levels.alpha * c) for c in CENTRES])
        x0 = (weights * means).sum(0)
        noise = (x - levels.alpha * x0) / levels.sigma
        velocity = levels.alpha_rate * x0 + levels.sigma_rate * noise
        found = flow.denoised(velocity, x, t.double())
        return found._replace(x0=x0, velocity=velocity)

    return denoise


def carried(flow, solver, steps, noise, **keys):
    return sample(best(flow), noise, flow, Sampling(solver=solver, steps=steps, **keys))


@cache
def limit():
    """Return noise, and where 2048 steps of Heun take it, nearly exact compared with fewer steps."""
    noise = torch.linspace(-1.5, 1.5, 40, dtype=torch.float64)[:, None]
    return noise, carried(Flow(), "heun", 2048, noise)


@pytest.mark.parametrize(("solver", "order"), [("euler", 1), ("heun", 2), ("dpm", 2)])
def test_solvers_converge_at_their_order(solver, order):
    """Twice the steps, an error 2^order smaller; of DPM-Solver++, whose ends are long in log(α / σ), with many."""
    noise, truth = limit()
    steps = np.array([256, 512, 1024] if solver == "dpm" else [32, 64, 128, 256])
    errors = [float((carried(Flow(), solver, int(n), noise) - truth).abs().mean()) for n in steps]
    slope = -np.polyfit(np.log(steps), np.log(errors), 1)[0]
    assert order - 0.4 < slope < order + 0.3, errors


@pytest.mark.parametrize("path", ["linear", "gvp"])
def test_equal_steps_of_the_logarithm_show_the_whole_order_of_dpm(path):
    """Times with equal steps of log(α / σ), from t = 0.98 to 0.01, as the proof has them: order 2 to a tenth."""
    flow, noise = Flow(path=path), torch.linspace(-1.5, 1.5, 40, dtype=torch.float64)[:, None]
    invert = {"linear": lambda a: (-a).sigmoid(), "gvp": lambda a: 2 / math.pi * (-a).exp().atan()}[path]
    alpha, sigma = flow.levels(torch.tensor([0.98, 0.01]))
    first, last = (alpha / sigma).log().tolist()

    def carried(steps):
        times = invert(torch.linspace(first, last, steps + 1, dtype=torch.float64))
        return follow(multistep(times[:-1], *flow.levels(times)), best(flow), noise)

    truth, steps = carried(1024), np.array([16, 32, 64, 128])
    errors = [float((carried(int(n)) - truth).abs().mean()) for n in steps]
    assert -np.polyfit(np.log(steps), np.log(errors), 1)[0] == pytest.approx(2.0, abs=0.1), errors


@pytest.mark.parametrize(
    "course",
    [
        "sigma",
        *(pytest.param(each, marks=pytest.mark.slow) for each in ("linear", "constant", "decreasing")),
    ],
)
def test_the_sde_has_the_distribution_of_the_flow(course):
    flow, noise = Flow(), torch.randn(1000, 1, generator=torch.Generator().manual_seed(0))
    generators = [torch.Generator().manual_seed(number) for number in range(len(noise))]
    # A constant one outweighs the width of the data's noise, t, near the data: less of it.
    how = Sampling(
        solver="euler_maruyama",
        steps=150,
        diffusion_coefficient=course,
        diffusion_scale=0.1 if course == "constant" else 1.0,
    )
    found = sample(best(flow), noise, flow, how, generators)
    share = float((found < -0.15).double().mean())
    assert share == pytest.approx(0.5, abs=0.04)
    low, high = found[found < -0.15], found[found >= -0.15]
    for part, centre in ((low, CENTRES[0]), (high, CENTRES[1])):
        assert float(part.mean()) == pytest.approx(centre, abs=0.04)
        assert float(part.std()) == pytest.approx(WIDTH, rel=0.15)
    assert not torch.allclose(found, carried(flow, "euler", 150, noise), atol=0.05)  # noise was added on the way


@pytest.mark.parametrize(
    ("course", "formula"),
    [
        ("sigma", lambda t: 0.5 * t),
        ("linear", lambda t: 0.5 * t),
        ("constant", lambda t: 0.5),
        ("decreasing", lambda t: (0.5 * math.cos(math.pi * (1 - t)) + 1) ** 2 / 4),
        ("increasing_decreasing", lambda t: 0.5 * math.sin(math.pi * t) ** 2),
    ],
)
def test_a_step_of_the_sde_is_the_formula_in_float64(course, formula):
    """SiT: x - h (v - w s), after the noise √(2 w h) z in all but the last step, w of the scale by its formula."""
    how = Sampling(solver="euler_maruyama", steps=5, diffusion_coefficient=course, diffusion_scale=0.5)
    path = euler_maruyama(Flow(), how, [torch.Generator().manual_seed(3)])
    z = torch.randn(1, generator=torch.Generator().manual_seed(3)).double()
    x, x0, velocity, t = 0.3, -0.4, 0.9, float(path.times[1])
    h, w, score = t - float(path.times[2]), formula(t), ((1 - t) * x0 - x) / t**2
    found = path.step(Denoised(torch.full((1, 1), x0), torch.full((1, 1), velocity)), 1, torch.full((1, 1), x))
    assert float(found) == pytest.approx(x - h * (velocity - w * score) + math.sqrt(2 * w * h) * float(z), rel=1e-5)


def test_the_way_back_finds_the_noise():
    flow = Flow()
    noise = torch.linspace(-1.5, 1.5, 20, dtype=torch.float64)[:, None]
    how = Sampling(solver="euler", steps=500)
    data = sample(best(flow), noise, flow, how)

    def denoise(x, t, before):
        found = best(flow)(x, t.clamp(min=1e-6), before)  # its own formula divides by σ; a network's velocity does not
        return found._replace(x0=x) if float(t[0]) == 0 else found

    torch.testing.assert_close(encode(denoise, data, flow, how), noise, atol=0.05, rtol=0)


@pytest.mark.parametrize("keys", [{"target": "x0"}, {"path": "vp"}])
def test_the_way_back_is_refused_where_no_velocity_is_finite_at_data(keys):
    with pytest.raises(DarkroomError, match="only a predicted velocity on the paths linear and gvp is finite"):
        encode(lambda x, t, b: Denoised(x, x), torch.zeros(1, 1), Flow(**keys), Sampling(solver="euler", steps=4))


@pytest.mark.parametrize(("target", "shift"), [("velocity", 3.0), ("score", 3.0), ("score", 0.5)])
def test_sampling_begins_where_training_ends(target, shift):
    flow = Flow(target=target, shift=shift)
    trained = flow.times(np.linspace(0, 1 - 1e-7, 10_001), np.linspace(-30, 30, 10_001))
    for solver in ("euler", "heun", "dpm", "euler_maruyama"):
        seen = []

        def denoise(x, t, before, seen=seen):
            seen.append(float(t[0]))
            return Denoised(x, torch.zeros_like(x))

        how = Sampling(solver=solver, steps=5)
        sample(denoise, torch.zeros(1, 1), flow, how, [torch.Generator()])
        assert seen[0] == pytest.approx(float(trained.max()), abs=1e-6)
        assert seen == sorted(seen, reverse=True) and seen[-1] > 0
        if solver == "euler_maruyama":
            assert seen[-1] == pytest.approx(0.04)


def test_shifted_steps_are_the_steps_shifted():
    seen = []
    sample(
        lambda x, t, b: (seen.append(float(t[0])), Denoised(x, x))[1],
        torch.zeros(1, 1), Flow(shift=3.0), Sampling(solver="euler", steps=4),
    )  # fmt: skip
    assert seen == pytest.approx([3 * t / (1 + 2 * t) for t in (1.0, 0.75, 0.5, 0.25)])
