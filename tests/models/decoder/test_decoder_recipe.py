"""A U-Net's recipe: its losses in float64, conditions dropped as asked, low-resolution images, a resume bit for bit."""

import math
import os
import signal
from typing import Any

import numpy as np
import pytest
import torch

from darkroom.data import draw
from darkroom.diffusion.schedules import NoiseSchedule
from darkroom.models.decoder.recipe import DecoderRecipe
from darkroom.models.decoder.unet_settings import UNet
from darkroom.rng import random_numbers
from darkroom.training.loop import train
from darkroom.training.recipe import Batch
from helpers import run, training
from models.decoder.small_decoder import IMAGES, MEAN, STD, STEPS, Rows, recipe, section, told_to, up_sampler
from training.toy import curves, places, weights

FEW = {"steps": 3}  # of the grids, where their number is not the subject


def batch(positions: list[int]) -> Batch:
    data = Rows().__getitems__([position % IMAGES for position in positions])
    return Batch(np.array(positions), {name: torch.from_numpy(values) for name, values in data.items()})


def drawn(positions: list[int], size: int, extra: int = 0) -> tuple[np.ndarray, np.ndarray]:
    normals, uniforms = random_numbers(3, "decoder/train", positions, size + extra, 10)
    return normals.astype(np.float64), uniforms


def test_the_hybrid_loss_is_the_formula_in_float64() -> None:
    positions = [0, 1, 2, 3, 4, 5]
    made, given = recipe(section(diffusion={"target": "v", "p2_gamma": 0.7, "p2_k": 1.5})), batch(positions)
    calls = told_to(made)
    found = made.loss(given)
    normals, uniforms = drawn(positions, 64)
    whole = given.data["images"].double().numpy() / 127.5 - 1
    x0 = whole.reshape(6, 1, 8, 2, 8, 2).mean(axis=(3, 5))
    noise = normals.reshape(6, 1, 8, 8)
    steps = np.floor(uniforms[:, 0].astype(np.float32).astype(np.float64) * STEPS).astype(int)
    left = NoiseSchedule.named("cosine", STEPS).alphas_cumprod[steps].reshape(6, 1, 1, 1)
    x = np.sqrt(left) * x0 + np.sqrt(1 - left) * noise
    assert calls[0]["steps"].tolist() == steps.tolist()
    np.testing.assert_allclose(calls[0]["x"].double().numpy(), x, atol=1e-5)
    with torch.no_grad():
        output = made.model(*(calls[0][name] for name in ("x", "steps", "told"))).double().numpy()
    wanted = np.sqrt(left) * noise - np.sqrt(1 - left) * x0
    weight = (1.5 + left / (1 - left)).reshape(6) ** -0.7
    simple = weight * ((output[:, :1] - wanted) ** 2).mean(axis=(1, 2, 3))
    assert found["simple"].item() == pytest.approx(simple.mean(), rel=1e-5)
    assert found["loss"].item() == pytest.approx(simple.mean() + 0.001 * found["bound"].item(), rel=1e-5)


def test_without_a_learned_variance_there_is_no_bound() -> None:
    assert recipe(section(diffusion={"variance": "fixed_small"})).loss(batch([0, 1])).keys() == {"loss"}


def test_conditions_drop_as_often_as_asked_each_by_itself() -> None:
    made = recipe(section(diffusion={"image_dropout": 0.2, "text_dropout": 0.6}))
    calls = told_to(made)
    with torch.no_grad():
        made.loss(batch(list(range(2000))))
    image, text = calls[0]["told"].image_kept, calls[0]["told"].text_kept
    assert float((~image).float().mean()) == pytest.approx(0.2, abs=0.03)
    assert float((~text).float().mean()) == pytest.approx(0.6, abs=0.04)
    assert float((~image & ~text).float().mean()) == pytest.approx(0.12, abs=0.03)


def test_validation_drops_nothing_and_says_the_same_each_time() -> None:
    made = recipe(section(diffusion={"image_dropout": 1.0, "text_dropout": 1.0}))
    calls = told_to(made)
    with torch.no_grad():
        first, second = made.validate(batch([4, 5])), made.validate(batch([4, 5]))
        alone = made.validate(batch([5]))
    assert calls[0]["told"].image_kept is None and calls[0]["told"].text_kept is None
    assert torch.equal(first["loss"], second["loss"])
    torch.testing.assert_close(first["loss"][1:], alone["loss"], rtol=1e-5, atol=1e-6)


def test_embeddings_are_standardised_and_noised() -> None:
    made = recipe(section())
    calls, given = told_to(made), batch([0, 1])
    made.loss(given)
    stored = given.data["image"].double()
    standard = (stored - torch.tensor(MEAN).double()) / torch.tensor([each or 1.0 for each in STD]).double()
    torch.testing.assert_close(calls[0]["told"].image.double(), standard, atol=1e-6, rtol=1e-6)
    made = recipe(section(diffusion={"embedding_noise": 0.5}))
    calls = told_to(made)
    made.loss(given)
    normals, uniforms = drawn([0, 1], 64, 6)
    level = torch.from_numpy(uniforms[:, 3] * 0.5)
    expected = (1 - level**2).sqrt()[:, None] * standard + level[:, None] * normals[:, 64:]
    torch.testing.assert_close(calls[0]["told"].image.double(), expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(calls[0]["told"].image_noise.double(), level, atol=1e-6, rtol=1e-6)


def low_of(how: dict[str, Any], positions: list[int], **changes: Any) -> tuple[Any, Batch]:
    made, given = recipe(up_sampler(how, **changes)), batch(positions)
    calls = told_to(made)
    with torch.no_grad():
        made.loss(given)
    return calls[0], given


def plain(given: Batch) -> torch.Tensor:
    small = torch.nn.functional.avg_pool2d(given.data["images"].double() / 127.5 - 1, 2)
    return small.repeat_interleave(2, dim=2).repeat_interleave(2, dim=3)


def test_an_up_sampler_is_told_the_small_image() -> None:
    call, given = low_of({}, [0, 1, 2])
    torch.testing.assert_close(call["told"].low.double(), plain(given), atol=1e-6, rtol=1e-6)
    assert call["x"].shape == (3, 1, 16, 16) and call["told"].low_noise is None


def test_half_of_the_small_images_are_blurred_and_the_others_are_not() -> None:
    positions = list(range(400))
    call, given = low_of({"blur": 0.5}, positions)
    _, uniforms = drawn(positions, 256)
    sharp = torch.isclose(call["told"].low.double(), plain(given), atol=1e-5).all(dim=(1, 2, 3))
    assert sharp.tolist() == (uniforms[:, 4] >= 0.5).tolist()


def test_noise_in_the_small_image_is_told() -> None:
    call, given = low_of({"noise": 0.8}, [0, 1, 2, 3])
    normals, uniforms = drawn([0, 1, 2, 3], 256, 256)
    level = torch.from_numpy(0.8 * uniforms[:, 6]).reshape(4, 1, 1, 1)
    noise = torch.from_numpy(normals[:, 256:]).reshape(4, 1, 16, 16)
    expected = (1 - level**2).sqrt() * plain(given) + level * noise
    torch.testing.assert_close(call["told"].low.double(), expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(call["told"].low_noise.double(), level.flatten(), atol=1e-6, rtol=1e-6)


def test_crops_of_image_and_small_image_are_of_the_same_place() -> None:
    given = batch(list(range(200)))
    # Of an image whose pixels are their own place, the crop says where it was.
    rows = torch.arange(16).repeat_interleave(16).reshape(1, 1, 16, 16)
    given.data["images"] = (16 * (rows // 2 * 2) // 2).to(torch.uint8).expand(200, 1, 16, 16)
    made = recipe(up_sampler({"crop": 8}, diffusion={"variance": "fixed_small", "target": "x0"}))
    calls = told_to(made)
    with torch.no_grad():
        made.loss(given)
    low = (calls[0]["told"].low + 1) * 127.5 / 8  # the first row of each crop: its top, in pixels
    assert calls[0]["x"].shape == low.shape == (200, 1, 8, 8)
    tops = low[:, 0, 0, 0].round().long()
    assert set(tops.tolist()) == {0, 2, 4, 6, 8}
    torch.testing.assert_close(low[:, 0, :, 0], tops[:, None] + torch.arange(8) // 2 * 2.0, atol=1e-3, rtol=0)


def test_half_of_the_images_are_told_what_was_found_before() -> None:
    made = recipe(section(model={"self_condition": True}))
    calls = told_to(made)
    with torch.no_grad():
        made.loss(batch(list(range(300))))
    assert len(calls) == 2 and calls[0]["before"] is None
    told = calls[1]["before"].flatten(1).any(dim=1)
    assert told.tolist() == (drawn(list(range(300)), 64)[1][:, 9] < 0.5).tolist()
    assert float(calls[1]["before"].abs().max()) <= 1


def test_an_image_meets_the_same_noise_in_any_batch() -> None:
    made = recipe(section())
    calls = told_to(made)
    made.loss(batch([0, 1, 2, 3]))
    made.loss(batch([2, 3]))
    assert torch.equal(calls[0]["x"][2:], calls[1]["x"]) and torch.equal(calls[0]["steps"][2:], calls[1]["steps"])


def test_the_preview_is_of_originals_and_what_is_made_of_them() -> None:
    for settings, side in ((section(grids=FEW), 8), (up_sampler({"noise": 0.5}, grids=FEW), 16)):
        made = recipe(settings)
        shown = made.preview()
        assert shown.shape == (40, 1, side, side) and shown.dtype == np.uint8
        assert np.array_equal(made.preview(), shown)


def test_the_preview_shows_validation_images_then_training_images() -> None:
    """Twelve of each: rows of ten, originals above what is made of them, the last rows filled with white."""
    made = recipe(up_sampler(grids={**FEW, "images": 12}))
    made.val = Rows()
    made.val.all = {name: values[::-1] for name, values in made.val.all.items()}
    shown = made.preview().reshape(2, 2, 2, 10, 16, 16)  # split, row of ten, original or made
    for number, rows in enumerate((made.val, made.train)):
        originals = rows.__getitems__(draw.drawn(len(rows), 12))["images"][:, 0]
        assert (shown[number, 0, 0] == originals[:10]).all() and (shown[number, 1, 0, :2] == originals[10:]).all()
        assert (shown[number, 1, :, 2:] == 255).all() and (shown[number, 0, 1] != originals[:10]).any()
    made.val.all = {name: values[:0] for name, values in made.val.all.items()}
    made.val.__class__ = type("Empty", (Rows,), {"__len__": lambda self: 0})
    assert made.preview().shape == (40, 1, 16, 16)


def test_the_sample_evolution_is_the_first_row_of_the_preview() -> None:
    for count in (3, 12):
        made = recipe(section(grids={**FEW, "images": count}))
        shown, row = made.preview(), min(count, 10)
        rows = shown.reshape(-1, 10, *shown.shape[1:])
        assert np.array_equal(made.originals(), rows[0, :row])
        assert np.array_equal(made.sample_evolution()[:3], rows[1, :3]) and len(made.sample_evolution()) == row


def test_the_preview_is_sampled_as_asked() -> None:
    made = recipe(section(grids={"solver": "ddpm", "steps": 7, "guidance": 1.0, "images": 3}))
    calls = told_to(made)
    shown = made.preview()
    assert [len(call["x"]) for call in calls] == [3] * 14
    assert calls[0]["steps"].tolist() == [STEPS - 1] * 3
    assert np.array_equal(made.preview(), shown)  # also the noise that ddpm adds


@pytest.mark.parametrize(("dropouts", "guided"), [((0.1, 0.5), True), ((0.0, 0.5), False), ((0.1, 0.0), False)])
def test_the_preview_is_guided_where_all_conditions_were_dropped(dropouts: tuple[float, float], guided: bool) -> None:
    made = recipe(section(grids=FEW, diffusion=dict(zip(("image_dropout", "text_dropout"), dropouts, strict=True))))
    calls = told_to(made)
    made.preview()
    assert {len(call["x"]) for call in calls} == {20 if guided else 10}


CASES: dict[str, tuple[UNet, dict[str, Any]]] = {
    "base": (section(model={"self_condition": True, "dropout": 0.1}, diffusion={"embedding_noise": 0.3}), {}),
    "up": (up_sampler({"noise": 0.5, "blur": 0.5, "crop": 8}), {"precision": "bf16"}),
}


@pytest.mark.parametrize("case", CASES)
def test_a_killed_training_continues_bit_for_bit(tmp_path: Any, case: str) -> None:
    settings, changes = CASES[case]
    how = training(images=40, learning_rate=0.001, **changes)
    whole = train(recipe(settings), how, run(), places(tmp_path / "whole"))

    def stop(seen: int) -> None:
        if seen == 16:
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(SystemExit):
        train(recipe(settings, stop), how, run(), places(tmp_path / "killed"))
    again = train(recipe(settings), how, run(), places(tmp_path / "killed"))
    assert weights(again) == weights(whole) and again.records == whole.records
    assert curves(tmp_path / "killed" / "curves") == curves(tmp_path / "whole" / "curves")
    assert math.isfinite(whole.records[-1]["train/loss"])


def test_pieces_of_a_batch_train_the_same(tmp_path: Any) -> None:
    settings = section()
    made: dict[int | None, DecoderRecipe] = {}
    for size in (None, 4):
        made[size] = recipe(settings)
        train(made[size], training(images=16, learning_rate=0.001), run(micro_batch=size), places(tmp_path / str(size)))
    for one, other in zip(made[None].model.parameters(), made[4].model.parameters(), strict=True):
        torch.testing.assert_close(one, other, atol=2e-4, rtol=0)  # Adam turns rounding of tiny gradients into steps


def test_activation_checkpointing_of_a_u_net_changes_no_bit(tmp_path: Any) -> None:
    settings, how = section(model={"dropout": 0.1}), training(images=16, learning_rate=0.001)
    found = [
        weights(train(recipe(settings), how, run(activation_checkpointing=again), places(tmp_path / str(again))))
        for again in (False, True)
    ]
    assert found[0] == found[1]
