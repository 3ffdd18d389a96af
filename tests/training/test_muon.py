"""Muon: what it moves, by how much, and what a stop, an overflow and several processes leave of it."""

import copy
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from darkroom.errors import DarkroomError
from darkroom.models.decoder.network import DecoderUNet, UNetConfig
from darkroom.models.fused import fused
from darkroom.models.generators.dit.config import DiTConfig
from darkroom.models.generators.dit.network import DiT
from darkroom.models.tokenizers.vqgan.network import Residual
from darkroom.tools.plan.rehearsal import memory_of
from darkroom.training import muon
from darkroom.training.loop import remaining_batches, seeded, train
from darkroom.training.muon import Muon, hidden_weights, orthogonalised
from darkroom.training.optimizer import build_optimizer, parameter_groups, parameter_names, state_bytes
from darkroom.training.processes import Processes
from darkroom.training.start import open_training
from darkroom.training.train_state import set_rates
from helpers import run, training
from training.toy import Toy, places, weights

ROOT = Path(__file__).parents[2]


class Mixed(nn.Module):
    """Each kind of parameter that is a matrix."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 16, 3)
        self.inner = nn.Conv2d(16, 24, 3)
        self.depthwise = nn.Conv2d(24, 24, 3, groups=24)
        self.up = nn.ConvTranspose2d(24, 16, 2)
        self.attention = nn.MultiheadAttention(16, 2, add_bias_kv=True)
        self.norm = nn.LayerNorm([16, 16])
        self.words = nn.Embedding(20, 16)
        self.tied = nn.Linear(16, 20)
        self.tied.weight = self.words.weight
        self.table = nn.Parameter(torch.zeros(16, 16))
        self.last = nn.Linear(16, 4)
        self.frozen = nn.Linear(16, 16).requires_grad_(False)
        self.weighed = nn.utils.parametrizations.weight_norm(nn.Linear(16, 16))


INNER = {"inner.weight", "up.weight", "attention.in_proj_weight", "attention.out_proj.weight"}


def moved(module, settings):
    """The names of the parameters that Muon moves."""
    names = parameter_names(module)
    groups = parameter_groups(module, settings)
    assert sorted(names[p] for group in groups for p in group["params"]) == sorted(names.values())
    return {names[parameter] for group in groups if group["muon"] for parameter in group["params"]}


def bound(values):
    """(sum of s^4)^(1/4) of singular values s: what the iteration divides them by."""
    return (values**4).sum() ** 0.25


def newton_schulz(matrix):
    """Float64: four times X <- a X + b (X X') X + c (X X') (X X') X, from X over the bound of its singular values."""
    x = np.asarray(matrix, dtype=np.float64)
    x = x / bound(np.linalg.svd(x, compute_uv=False))
    for first, third, fifth in (
        (8.2193, -23.3375, 16.6266),
        (3.9641, -2.8377, 0.5158),
        (3.4368, -2.4752, 0.4762),
        (2.4901, -1.8343, 0.4368),
    ):
        gram = x @ x.T
        x = first * x + third * gram @ x + fifth * gram @ gram @ x
    return x


def single(matrix):
    return orthogonalised(matrix[None])[0]


def network():
    with seeded(5):
        return nn.Sequential(
            nn.Conv2d(2, 16, 3), nn.Conv2d(16, 18, 3), nn.Flatten(), nn.Linear(72, 16), nn.Linear(16, 1)
        )


def gradients(module, seed):
    with seeded(seed):
        x = torch.randn(4, 2, 6, 6)
    (module(x) - 1).square().mean().backward()


def updates(module, optimizer, settings, images):
    for seen in images:
        set_rates(optimizer, settings, seen)
        optimizer.zero_grad()
        gradients(module, seen)
        optimizer.step()


def test_weights_of_inner_layers_are_moved_by_muon_and_the_rest_by_adamw():
    assert moved(Mixed(), training(optimizer="muon")) == INNER
    assert moved(Mixed(), training()) == set()


@pytest.mark.parametrize("shape", [(16, 16), (16, 144), (90, 20)])
def test_an_orthogonalised_matrix_has_the_singular_vectors_of_the_first_and_no_values(shape):
    with seeded(1):
        matrix = torch.randn(shape) * 1e-3
    found = single(matrix)
    wide = matrix.mT if shape[0] > shape[1] else matrix
    expected = newton_schulz(wide)
    np.testing.assert_allclose(found.mT if shape[0] > shape[1] else found, expected, atol=2e-5)
    u, s, v = torch.linalg.svd(matrix.double(), full_matrices=False)
    inside = u.mT @ found.double() @ v.mT
    values = inside.diagonal()
    assert torch.allclose(inside, values.diag(), atol=1e-4)
    large = values[s > 0.003 * bound(s)]
    assert len(large) > len(s) / 2 and large.min() > 0.76 and large.max() < 1.205
    assert torch.allclose(single(matrix * 1e6), found, atol=1e-5)


@pytest.mark.parametrize("shape", [(16, 16), (16, 144), (90, 20), (20, 24)])
def test_of_several_matrices_each_is_orthogonalised_as_alone(shape):
    with seeded(6):
        matrices = torch.randn(5, *shape) * torch.tensor([1e-4, 1.0, 1e4, 1.0, 0.0])[:, None, None]
    found = orthogonalised(matrices)
    torch.testing.assert_close(found, torch.stack([single(each) for each in matrices]))
    assert not found[4].any()  # no gradient, no step


def test_singular_values_of_five_orders_keep_three_digits_in_float32():
    """Long matrices go by X X', whose smallest eigenvalues are below the rounding of its largest."""
    with seeded(7):
        u, _, v = torch.linalg.svd(torch.randn(32, 288).double(), full_matrices=False)
    matrix = (u * torch.logspace(0, -5, 32).double() @ v).float()
    expected = newton_schulz(matrix)
    assert np.linalg.norm(single(matrix).numpy() - expected) < 1e-3 * np.linalg.norm(expected)


@pytest.mark.parametrize(("bfloat16", "apart"), [(False, 0.0), (True, 0.03)])
def test_singular_values_from_0_003_of_the_bound_on_come_near_to_one(bfloat16, apart):
    """Beside a first one that nearly is the bound."""
    others = torch.cat([torch.logspace(-2.4, -0.7, 200), torch.full((50,), 0.003)])
    values = torch.cat([torch.ones(1), others])
    values[1:] *= bound(values)
    ends = orthogonalised(values.diag()[None], bfloat16=bfloat16)[0].diagonal()
    assert ends.min() > 0.76 - apart and ends.max() < 1.205 + apart
    assert single(torch.tensor([1.0, 1e-4]).diag())[1, 1] < 0.1  # what is smaller stays small


def test_each_quintic_is_the_nearest_to_one_of_what_the_one_before_leaves():
    """Remez: the error at both ends of the interval and at the two turns between is alike, with signs in turn."""
    low = 0.003
    high, last = 1.0, len(muon._QUINTICS) - 1
    for number, (first, third, fifth) in enumerate(muon._QUINTICS):
        scale = 1.02 if number < last else 1.0

        def quintic(x, odd=(first * scale, third * scale**3, fifth * scale**5)):
            return odd[0] * x + odd[1] * x**3 + odd[2] * x**5

        x = np.linspace(low, high, 100_001)
        error = quintic(x) - 1
        turns = np.flatnonzero(np.diff(np.sign(np.diff(error)))) + 1
        assert len(turns) == 2
        at = error[[0, *turns, -1]]
        np.testing.assert_allclose(at * [-1, 1, -1, 1], np.abs(error).max(), rtol=5e-3)
        low = quintic(low)
        high = 2 - low


@pytest.mark.parametrize("rank", [1, 40])
@pytest.mark.parametrize("shape", [(40, 40), (40, 160)])
def test_bfloat16_lifts_no_singular_value_above_what_the_quintics_stand(rank, shape):
    """Of a low rank the bound is nearly reached. What rounding leaves in other directions stays bounded, too."""
    with seeded(13):
        matrix = torch.randn(shape[0], rank) @ torch.randn(rank, shape[1]) + 1e-3 * torch.randn(shape)
    u, s, v = torch.linalg.svd(matrix.double(), full_matrices=False)
    found, exact = (orthogonalised(matrix[None], bfloat16=each)[0].double() for each in (True, False))
    values, expected = ((u.mT @ each @ v.mT).diagonal()[:rank][s[:rank] > 0.02 * s[0]] for each in (found, exact))
    torch.testing.assert_close(values, expected, atol=0.2, rtol=0)
    assert torch.linalg.svdvals(found).max() < 1.3


def test_a_training_in_bf16_orthogonalises_in_bfloat16():
    module, half = nn.Linear(32, 32, bias=False), nn.Linear(32, 32, bias=False)
    half.load_state_dict(module.state_dict())
    before = module.weight.detach().clone()
    with seeded(14):
        gradient = torch.randn(32, 32)
    for each, precision in ((module, "fp32"), (half, "bf16")):
        optimizer = build_optimizer(each, training(optimizer="muon", learning_rate=0.1, precision=precision))
        each.weight.grad = gradient.clone()
        optimizer.step()
        assert optimizer.state[each.weight]["momentum_buffer"].dtype == torch.float32
    steps = [(each.weight.detach() - before) for each in (module, half)]
    difference = (steps[0] - steps[1]).norm() / steps[0].norm()
    assert 1e-4 < difference < 0.05


def test_updates_are_the_formula_in_float64_for_maps_and_adamw_to_the_bit_for_the_rest():
    settings = training(optimizer="muon", learning_rate=0.02, weight_decay=0.1)
    module, other = network(), network()
    optimizer = build_optimizer(module, settings)
    plain = torch.optim.AdamW(
        build_optimizer(other, training(learning_rate=0.02, weight_decay=0.1)).param_groups,
        lr=0.02,
        betas=settings.betas,
        fused=True,
    )
    rate = 0.02
    mine = {name: module.get_parameter(name).detach().double().numpy() for name in ("1.weight", "3.weight")}
    momentum = {name: np.zeros_like(value) for name, value in mine.items()}
    for seen in range(0, 40, 8):
        set_rates(optimizer, settings, seen)
        optimizer.zero_grad()
        gradients(module, seen)
        for name in mine:
            gradient = module.get_parameter(name).grad.double().numpy()
            momentum[name] = 0.95 * momentum[name] + 0.05 * gradient
            ahead = 0.05 * gradient + 0.95 * momentum[name]
            flat = ahead.reshape(len(ahead), -1)
            step = 0.2 * rate * np.sqrt(max(flat.shape)) * newton_schulz(flat).reshape(ahead.shape)
            mine[name] = (1 - rate * 0.1) * mine[name] - step
        for name, value in other.named_parameters():  # the same gradients, whatever the maps have become
            value.grad = module.get_parameter(name).grad.clone()
        optimizer.step()
        plain.step()
    for name, value in module.named_parameters():
        if name in mine:
            np.testing.assert_allclose(value.detach().numpy(), mine[name], atol=2e-5)
        else:
            assert torch.equal(value, other.get_parameter(name))


def test_a_matrix_moves_as_torchs_own_muon_moves_it_to_bfloat16(monkeypatch):
    """With one quintic for both, which comes to 1 from everywhere."""
    quintic = (1.875, -1.25, 0.375)
    monkeypatch.setattr(muon, "_QUINTICS", (quintic,) * 14)
    with seeded(2):
        start, gradient = torch.randn(32, 48), torch.randn(32, 48)
    module = nn.Linear(48, 32, bias=False)
    with torch.no_grad():
        module.weight.copy_(start)
    optimizer = build_optimizer(module, training(optimizer="muon", learning_rate=0.1, weight_decay=0.1))
    theirs = nn.Parameter(start.clone())
    reference = torch.optim.Muon(
        [theirs], lr=0.1, weight_decay=0.1, ns_coefficients=quintic, ns_steps=14, adjust_lr_fn="match_rms_adamw"
    )
    for factor in (1.0, -0.3, 0.5):
        module.weight.grad, theirs.grad = gradient.roll(1) * factor, gradient.roll(1) * factor
        optimizer.step()
        reference.step()
    change = (theirs - start).norm()
    assert (module.weight - theirs).norm() < 0.02 * change


def test_a_step_has_about_the_size_of_adamws():
    """Gradients that share nothing: AdamW's steps are sqrt((1 - 0.9) / (1 + 0.9)) = 0.23 of the rate, Muon's 0.2."""
    sizes = []
    for kind in ("adamw", "muon"):
        with seeded(3):
            module = nn.Linear(128, 64, bias=False)
            optimizer = build_optimizer(module, training(optimizer=kind, learning_rate=0.01))
            for _ in range(300):
                module.weight.grad = torch.randn(64, 128)
                before = module.weight.detach().clone()
                optimizer.step()
        sizes.append((module.weight.detach() - before).square().mean().sqrt().item())
    adamw, muon = sizes
    assert adamw == pytest.approx(0.0023, rel=0.1) and muon == pytest.approx(adamw, rel=0.3)


@pytest.mark.parametrize(
    ("layer", "layout"),
    [
        (nn.Conv2d(16, 200, 3), torch.contiguous_format),
        (nn.Conv2d(16, 200, 3), torch.channels_last),
        (nn.ConvTranspose2d(16, 24, 2), torch.contiguous_format),
        (nn.Conv2d(32, 64, 3, groups=2), torch.contiguous_format),
    ],
    ids=str,
)
def test_any_convolution_is_the_matrix_of_its_first_dimension_by_all_else(layer, layout):
    module = copy.deepcopy(layer).to(memory_format=layout)
    before = module.weight.detach().double().numpy()
    optimizer = build_optimizer(module, training(optimizer="muon", learning_rate=0.1))
    with seeded(4):
        module.weight.grad = torch.randn(module.weight.shape).to(memory_format=layout)
    gradient = module.weight.grad.double().numpy()
    optimizer.step()
    flat = gradient.reshape(len(gradient), -1)
    tall = flat.shape[0] > flat.shape[1]
    step = newton_schulz(flat.T).T if tall else newton_schulz(flat)
    expected = before - 0.2 * 0.1 * np.sqrt(max(flat.shape)) * step.reshape(before.shape)
    np.testing.assert_allclose(module.weight.detach().numpy(), expected, atol=2e-5)  # float32 of numbers below 2


@pytest.mark.parametrize("stacked", [1, 2 * 24 * 24, 2**18])
def test_weights_of_one_shape_move_each_by_its_own_gradient(stacked, monkeypatch):
    monkeypatch.setattr(muon, "_STACKED", stacked)
    with seeded(12):
        module = nn.Sequential(*(nn.Linear(24, 24, bias=False) for _ in range(6)))
        gradients = torch.randn(6, 24, 24)
    before = [layer.weight.detach().clone() for layer in module]
    optimizer = build_optimizer(module, training(optimizer="muon", learning_rate=0.1))
    for number, (layer, gradient) in enumerate(zip(module, gradients, strict=True)):
        layer.weight.grad = gradient.clone() if number != 2 else None
    optimizer.step()
    for number, (layer, start, gradient) in enumerate(zip(module, before, gradients, strict=True)):
        moved = start - layer.weight.detach()
        expected = newton_schulz(gradient) * 0.2 * 0.1 * np.sqrt(24) * (number != 2)
        np.testing.assert_allclose(moved, expected, atol=1e-5)
    assert len(optimizer.state) == 5


class Fused(nn.Module):
    """Layers of several in one, and one of each of their parts' shape."""

    def __init__(self):
        super().__init__()
        with seeded(8):
            self.qkv = fused(nn.Linear(24, 72), 3)
            self.gated = fused(nn.Conv2d(16, 48, 3), 2)
            self.tall = fused(nn.Linear(16, 48), 2)
            self.attention = nn.MultiheadAttention(16, 2)
            self.plain = nn.Linear(24, 24)


@pytest.mark.parametrize("chunks", [False, True])
def test_the_parts_of_a_layer_move_apart_where_the_key_says_so(chunks):
    module = Fused()
    before = {name: parameter.detach().double().numpy() for name, parameter in module.named_parameters()}
    optimizer = build_optimizer(module, training(optimizer="muon", muon_chunks=chunks, learning_rate=0.1))
    with seeded(9):
        for parameter in module.parameters():
            parameter.grad = torch.randn_like(parameter)
    gradients = {name: parameter.grad.double().numpy() for name, parameter in module.named_parameters()}
    optimizer.step()
    parts = {
        "qkv.weight": 3,
        "gated.weight": 2,
        "tall.weight": 2,
        "attention.in_proj_weight": 3,
        "attention.out_proj.weight": 1,
    }
    for name, count in {**parts, "plain.weight": 1}.items():
        steps = []
        for part in np.split(gradients[name], count if chunks else 1):
            flat = part.reshape(len(part), -1)
            step = newton_schulz(flat.T).T if flat.shape[0] > flat.shape[1] else newton_schulz(flat)
            steps.append(0.2 * 0.1 * np.sqrt(max(flat.shape)) * step.reshape(part.shape))
        moved = before[name] - module.get_parameter(name).detach().double().numpy()
        np.testing.assert_allclose(moved, np.concatenate(steps), atol=1e-5)
    state = {name: optimizer.state[module.get_parameter(name)] for name in parts}
    assert all(state[name].keys() == {"momentum_buffer"} for name in parts)
    assert all(state[name]["momentum_buffer"].shape == module.get_parameter(name).shape for name in parts)


def test_the_layers_of_our_networks_that_are_several_in_one_are_marked():
    """Each linear layer with more outputs than inputs, by the number that its outputs are cut into."""
    config = DiTConfig(4, 8, 3, 32, 2, 2, 2, mlp="swiglu", condition="tokens", embed_dim=16, text_shape=(4, 16))
    dit, chunks = DiT(config), {}
    for name, layer in dit.named_modules():
        if isinstance(layer, nn.Linear):
            chunks.setdefault(getattr(layer, "chunks", 1), set()).add(re.sub(r"blocks\.\d", "blocks", name))
    assert chunks.pop(1) == {
        *(f"{name}.mlp.{number}" for name in ("time", "vector", "text") for number in (0, 2)),
        *(f"blocks.{name}" for name in ("out", "mlp.out", "cross.query", "cross.out")),
        "head.linear",
    }
    assert chunks == {
        2: {"blocks.mlp.gated", "blocks.cross.key_value", "head.modulation.1"},
        3: {"blocks.qkv"},
        6: {"blocks.modulation.1"},
    }


def test_layers_of_other_packages_that_are_several_in_one_are_marked():
    told = {"embed_dim": 16, "image_tokens": 2, "image_to_time": True, "attention": [True, True]}
    unet = DecoderUNet(UNetConfig(8, 3, (16, 32), layers=1, head_dim=8, norm_groups=8, **told))
    names = parameter_names(unet)
    marked = {names[weight] for weight, chunks in hidden_weights(unet).items() if chunks == 2}
    assert marked == {
        name for name in names.values() if name.endswith(("time_emb_proj.weight", "ff.net.0.proj.weight"))
    }
    assert {name.rsplit(".", 2)[1] for name in marked} == {"time_emb_proj", "proj"}
    residual = hidden_weights(Residual(16, 8, gated=True))
    assert sorted(residual.values()) == [1, 2, 2]


def test_chunks_without_muon_are_refused():
    with pytest.raises(ValueError, match="muon_chunks is only read with optimizer muon"):
        training(muon_chunks=True)


def test_a_closure_is_refused():
    with pytest.raises(ValueError, match="closures"):
        build_optimizer(nn.Linear(16, 16), training(optimizer="muon")).step(lambda: 1.0)


def test_the_state_is_counted_and_holds_one_number_a_weight():
    module = network()
    settings = training(optimizer="muon")
    optimizer = build_optimizer(module, settings)
    updates(module, optimizer, settings, [0])
    held = sum(value.nbytes for state in optimizer.state.values() for value in state.values())
    assert state_bytes(optimizer.param_groups) == held
    moved = [weight for group in optimizer.param_groups if group["muon"] for weight in group["params"]]
    saved = state_bytes(parameter_groups(module, training())) - held
    assert saved == sum(weight.nbytes + 4 for weight in moved) > 0


class Wide(Toy):
    """A toy with maps that Muon moves together; without dropout, whose draws follow from the shape of a pass."""

    def __init__(self, hook=None):
        super().__init__(hook)
        with seeded(11):
            self.modules["first"] = nn.Sequential(
                nn.Linear(2, 24), nn.Linear(24, 24), nn.Linear(24, 24), nn.LayerNorm(24), nn.Linear(24, 1)
            )


def test_a_training_that_stopped_continues_bit_for_bit(tmp_path):
    settings = training(optimizer="muon")
    whole = train(Wide(), settings, run(), places(tmp_path / "whole"))
    assert isinstance(whole.optimizers["first"], Muon)
    adamw = train(Wide(), training(), run(), places(tmp_path / "adamw"))
    assert weights(adamw).keys() == weights(whole).keys() and weights(adamw) != weights(whole)

    def die(seen):
        if seen >= 40:
            raise RuntimeError("killed")

    with pytest.raises(RuntimeError, match="killed"):
        train(Wide(die), settings, run(max_lost_seconds=1e-9), places(tmp_path / "stopped"))
    resumed = train(Wide(), settings, run(), places(tmp_path / "stopped"))
    assert weights(resumed) == weights(whole)
    assert resumed.records == whole.records


def test_an_overflow_in_fp16_moves_nothing(tmp_path):
    recipe = Wide()
    settings = training(optimizer="muon", precision="fp16", images=8 * 20)
    trainer = open_training(recipe, settings, run(), places(tmp_path))
    inner = trainer.modules["first"][1].weight
    before = inner.detach().clone()
    batches = remaining_batches(trainer)
    handle = inner.register_hook(lambda gradient: gradient * float("inf"))
    trainer.step(next(batches))
    assert torch.equal(inner, before)
    handle.remove()
    for batch in batches:  # the scale begins too high for Toy, and halves until it fits
        trainer.step(batch)
    assert inner.isfinite().all() and not torch.equal(inner, before)


def test_shards_of_matrices_are_refused(tmp_path, monkeypatch):
    begin = Processes.__init__

    def sharded(self, *arguments):
        begin(self, *arguments)
        self.sharded = True

    monkeypatch.setattr(Processes, "__init__", sharded)
    monkeypatch.setattr(Processes, "prepare", lambda *_: pytest.fail("nothing is sharded before that is known"))
    with pytest.raises(DarkroomError, match="`optimizer: muon` needs whole matrices"):
        open_training(Wide(), training(optimizer="muon"), run(), places(tmp_path))


@pytest.mark.parametrize("kind", ["adamw", "muon"])
def test_the_plan_counts_the_state_that_an_update_leaves(kind, tmp_path):
    settings = training(optimizer=kind, images=8, batch=8)
    planned = memory_of(Wide(), settings)["optimizer"]
    optimizers = train(Wide(), settings, run(), places(tmp_path)).optimizers.values()
    states = [state for optimizer in optimizers for state in optimizer.state.values()]
    assert planned == sum(value.nbytes for state in states for value in state.values())
