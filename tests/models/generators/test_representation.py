"""Losses of the transformer's tokens: the formulas, what they train, where the teacher's weights come from, resumes."""

import copy
import json
import math

import numpy as np
import pytest
import torch

from darkroom.errors import DarkroomError
from darkroom.models.generators.dit.network import DiT
from darkroom.models.generators.dit.recipe import alignment, dispersive
from darkroom.models.generators.dit.settings import DiT as Section
from darkroom.models.generators.dit.settings import Representation
from darkroom.params.section import validate
from darkroom.rng import random_numbers
from darkroom.training.loop import train
from darkroom.training.start import open_training
from forks import in_ranks
from helpers import run, training
from models.generators.aligned import BOTH, batch, member, recipe
from training.toy import places, weights


def opened(folder, **losses):
    """Return a recipe that the loop has begun to train: its averages are other weights than its own."""
    made = recipe(**losses)
    trainer = open_training(made, training(), run(), places(folder))
    with torch.no_grad():
        for value in trainer.ema.state["dit"].values():
            value.mul_(1.5)
    return made


def gradients(module):
    return {name for name, value in module.named_parameters() if value.grad is not None and value.grad.any()}


def of_blocks(names):
    return {int(name.split(".")[1]) + 1 for name in names if name.startswith("blocks.")}


# ---------------------------------------------------------------------------------------------------------------------
# The formulas


def test_the_dispersive_loss_is_the_formula_in_float64():
    """3e-6: float32 products of 6 x 48 numbers that are 30 from 0, whose mean is taken out first."""
    tokens = torch.randn(6, 3, 16, generator=torch.Generator().manual_seed(0)) + 30
    z = tokens.double().reshape(6, -1).numpy()
    terms = [math.exp(-((one - other) ** 2).sum() / 48 / 0.7) for one in z for other in z]
    assert dispersive(tokens, 0.7).item() == pytest.approx(math.log(sum(terms) / 36), rel=3e-6)
    with torch.autocast("cpu", dtype=torch.bfloat16):  # which would round the products to 3 digits
        assert dispersive(tokens, 0.7).item() == pytest.approx(math.log(sum(terms) / 36), rel=3e-6)


def test_the_gradient_of_the_dispersive_loss_is_that_of_the_formula_in_float64():
    tokens = torch.randn(6, 3, 16, generator=torch.Generator().manual_seed(0), requires_grad=True)
    dispersive(tokens, 0.5).backward()
    z = tokens.detach().double().flatten(1).requires_grad_()
    torch.cdist(z, z).square().div(-48 * 0.5).exp().mean().log().backward()
    assert torch.allclose(tokens.grad.flatten(1).double(), z.grad, atol=1e-7)


def test_the_alignment_is_smooth_l1():
    projected, target = torch.randn(2, 4, 3, 8, generator=torch.Generator().manual_seed(0)).double().unbind()
    target[0] = projected[0] + 0.01
    away = (projected - target).abs()
    expected = torch.where(away < 0.05, away**2 / 0.1, away - 0.025).mean().item()
    assert alignment(projected, target).item() == pytest.approx(expected, rel=1e-6)


# ---------------------------------------------------------------------------------------------------------------------
# What is added, and what it trains


def test_without_weights_nothing_is_added():
    made = recipe()
    assert list(made.modules) == ["dit"] and len(made.phases) == 1 and not made.whole_batch
    assert list(made.loss(batch())) == ["loss"]


def test_losses_are_added_by_their_weights_and_draw_nothing_of_the_others(tmp_path):
    made, plain = opened(tmp_path, **BOTH), recipe()
    found, alone = made.loss(batch()), plain.loss(batch())
    assert list(found) == ["loss", "dispersive", "alignment"]
    assert found["loss"] == alone["loss"] + 0.5 * found["dispersive"] + 0.2 * found["alignment"]
    for name, values in plain.validate(batch()).items():  # which has the objective's loss alone
        assert torch.equal(made.validate(batch())[name], values)


def test_autocast_trains_the_weights_that_are_trained(tmp_path):
    """And not the averaged ones, whose casts it would keep from the teacher's pass."""
    made, plain = opened(tmp_path, **BOTH), recipe()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = made.loss(batch())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        alone = plain.loss(batch())
    assert found["loss"] == alone["loss"] + 0.5 * found["dispersive"] + 0.2 * found["alignment"]


@torch.no_grad()
def test_tokens_are_those_after_a_block_and_the_prediction_stays():
    model = recipe().model
    given = torch.randn(3, 2, 4, 4), torch.tensor([10.0, 500.0, 900.0]), torch.tensor([0, 5, 2])
    seen = []
    model.blocks[3].register_forward_hook(lambda block, inputs, made: seen.append(made[0]))
    made, second, first = model(*given, taps=(4, 2))
    assert torch.equal(made, model(*given)) and torch.equal(second, seen[0]) and not torch.equal(first, second)


def test_the_dispersive_loss_trains_the_blocks_up_to_its_own():
    made = recipe(dispersive=0.5, dispersive_block=4)
    made.loss(batch())["dispersive"].backward()
    assert of_blocks(gradients(made.model)) == {1, 2, 3, 4} and "head.linear.weight" not in gradients(made.model)


def test_the_alignment_trains_blocks_and_projector_and_no_teacher(tmp_path):
    made = opened(tmp_path, alignment=0.2, alignment_block=2, teacher_block=5)
    given = batch()
    made.loss(given)["alignment"].backward()
    assert of_blocks(gradients(made.model)) == {1, 2}
    assert gradients(made.modules["projector"]) == {"0.weight", "0.bias", "2.weight", "2.bias"}
    assert not given.outputs["target"].requires_grad and not given.outputs["tokens"].requires_grad
    assert not any(value.requires_grad for value in made.average.state["dit"].values())


def test_the_projectors_phase_has_the_gradient_of_the_one_loss(tmp_path):
    made, given = opened(tmp_path, **BOTH), batch()
    made.loss(given)["loss"].backward()
    joint = [parameter.grad.clone() for parameter in made.modules["projector"].parameters()]
    made.modules["projector"].zero_grad()
    made.project(given)["loss"].backward()
    for parameter, expected in zip(made.modules["projector"].parameters(), joint, strict=True):
        assert torch.allclose(parameter.grad, expected, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("objective", ["flow", "gaussian"])
def test_the_teacher_is_the_average_at_less_noise(tmp_path, objective):
    """The same noise and condition, at max(0, t - k) of the way, k uniform below the gap; without dropout."""
    made = opened(tmp_path, alignment=0.2, noise_gap=0.4, diffusion={"objective": objective}, model={"dropout": 0.3})
    given = batch()
    made.loss(given)
    drawn, uniforms = made._drawn(given, "train", 0.1), random_numbers(9, "dit/alignment", range(8), 0, 1)[1][:, 0]
    time = np.maximum(0, drawn.time.double().numpy() - 0.4 * uniforms * made.objective.duration)
    time = torch.from_numpy(time).to(drawn.time.dtype)
    assert (time < drawn.time).any()
    teacher = copy.deepcopy(made.model).eval()
    teacher.load_state_dict(made.average.state["dit"])
    with torch.no_grad():
        x = made.objective.add_noise(drawn.x0, drawn.noise, time)
        _, expected = teacher(x, made.objective.timesteps(time), drawn.condition, taps=(4,))
    assert torch.allclose(given.outputs["target"], expected, atol=1e-5)
    assert made.model.training and all(
        torch.equal(value, recipe(model={"dropout": 0.3}).model.state_dict()[name])
        for name, value in made.model.state_dict().items()
    )


# ---------------------------------------------------------------------------------------------------------------------
# Trainings


def ended(folder, losses, **how):
    settings = training(**{"ema_decay": 0.9, "validate_every": 32, "select": "best", **how.pop("settings", {})})
    made = recipe(how.pop("stop_at", None), **{**losses, **how.pop("recipe", {})})
    return train(made, settings, run(**how), places(folder))


@pytest.mark.parametrize("micro_batch", [None, 4])
def test_a_training_that_was_stopped_ends_as_one_that_was_not_to_the_last_bit(tmp_path, micro_batch):
    losses = {"alignment": 0.2} if micro_batch else BOTH
    how = {"micro_batch": micro_batch, "recipe": {"model": {"dropout": 0.1}}}
    whole = ended(tmp_path / "whole", losses, **copy.deepcopy(how))
    with pytest.raises(SystemExit):
        ended(tmp_path / "stopped", losses, stop_at=36, **copy.deepcopy(how))
    resumed = ended(tmp_path / "stopped", losses, **copy.deepcopy(how))
    assert weights(resumed) == weights(whole) and resumed.records == whole.records
    assert {"train/alignment", *(f"train/{name}" for name in losses)} <= whole.records[-1].keys()


def test_the_average_that_teaches_is_part_of_the_training(tmp_path):
    one, other = (ended(tmp_path / str(decay), BOTH, settings={"ema_decay": decay}) for decay in (0.0, 0.9))
    mine, theirs = weights(one), weights(other)
    assert any(mine[name] != theirs[name] for name in mine if name.startswith("dit/"))


def test_activations_that_are_computed_again_give_the_same_bits(tmp_path):
    plain = ended(tmp_path / "plain", BOTH)
    assert weights(ended(tmp_path / "again", BOTH, activation_checkpointing=True)) == weights(plain)


@pytest.mark.slow
def test_compilation_trains_to_the_same_numbers(tmp_path):
    plain, other = (ended(tmp_path / str(on), BOTH, settings={"compile": on}) for on in (False, True))
    for name, module in plain.modules.items():
        for key, value in module.state_dict().items():  # another order of float32 sums, over 8 updates
            assert torch.allclose(value, other.modules[name].state_dict()[key], atol=2e-3), key


def test_the_projector_is_not_saved(tmp_path):
    trainer = ended(tmp_path, BOTH)
    with trainer.averaged():
        trainer.recipe.save(tmp_path / "model")
    saved = DiT.from_pretrained(tmp_path / "model").state_dict()
    assert saved.keys() == recipe().model.state_dict().keys() and "projector" in trainer.modules
    assert all(torch.equal(value, trainer.best_state["dit"][name]) for name, value in saved.items())


def test_several_processes_train_as_one_and_continue_bit_for_bit(tmp_path):
    """Of 999 in 1,000 weights: a gradient near 0, summed in another order, may have the other sign, as Adam's step."""
    found = {}
    for name, count, sharded in (("one", 1, False), ("two", 2, False), ("shards", 2, True)):
        in_ranks(member, tmp_path / name, count, BOTH, None, sharded)
        found[name] = json.loads((tmp_path / name / "result.json").read_text())
    numbers = {
        name: np.frombuffer(b"".join(bytes.fromhex(value) for value in each["weights"].values()), np.float32)
        for name, each in found.items()
    }
    for name in ("two", "shards"):
        assert np.quantile(np.abs(numbers[name] - numbers["one"]), 0.999) < 1e-3
        for mine, theirs in zip(found["one"]["records"], found[name]["records"], strict=True):
            shared = [key for key in mine if key.startswith("train/") and "grad_norm" not in key]
            # Each process logs what of the alignment is of its images; the dispersive loss is of all.
            assert [theirs[key] for key in shared] == pytest.approx([mine[key] for key in shared], rel=1e-3)
    in_ranks(member, tmp_path / "stopped", 2, BOTH, 36, False, ends=(143,))
    in_ranks(member, tmp_path / "stopped", 2, BOTH, None, False)
    assert json.loads((tmp_path / "stopped" / "result.json").read_text()) == found["two"]


# ---------------------------------------------------------------------------------------------------------------------
# Settings


def test_blocks_are_at_fractions_of_the_depth_where_none_is_named():
    of = Representation(dispersive=0.5, dispersive_block=5)
    assert [of.block(f"{name}_block", 12) for name in ("dispersive", "alignment", "teacher")] == [5, 4, 8]
    assert [Representation().block(f"{name}_block", 28) for name in ("dispersive", "alignment", "teacher")] == [
        7,
        9,
        19,
    ]
    assert Representation().block("dispersive_block", 1) == 1
    assert Section(representation=Representation(dispersive=0.5)).whole_batch and not Section().whole_batch


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"dispersive_tau": 1.0}, "dispersive_tau is read with dispersive only"),
        ({"dispersive": 0.5, "noise_gap": 0.1}, "noise_gap is read with alignment only"),
        ({"alignment": 0.2, "dispersive_block": 2}, "dispersive_block is read with dispersive only"),
        ({"alignment": 0.2, "teacher_block": 13}, "representation.teacher_block must be one of the model's blocks"),
    ],
)
def test_a_key_that_nothing_reads_is_refused(values, words):
    with pytest.raises(DarkroomError, match=words):
        validate(Section, {"representation": values})
