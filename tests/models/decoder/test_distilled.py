"""A U-Net that distils another: few calls follow the guided teacher, take its place, and refuse what is not theirs."""

import os
import signal
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from darkroom.artifacts.manifest import ArtifactError, manifest_hash
from darkroom.check.check import completed, validated
from darkroom.diffusion.denoiser import Guidance, clip_x0
from darkroom.diffusion.objectives import objective_of
from darkroom.diffusion.samplers import sample
from darkroom.diffusion.scalers import EmbeddingScaler
from darkroom.errors import DarkroomError
from darkroom.models.decoder.cascade import Cascade
from darkroom.models.decoder.data import Conditioner, PixelSpace
from darkroom.models.decoder.distilled import DistilledRecipe, like_teacher
from darkroom.models.decoder.fits import fits
from darkroom.models.decoder.network import DecoderUNet, unet_denoiser
from darkroom.models.decoder.opening import DecoderData, config_of
from darkroom.models.decoder.recipe import DecoderRecipe
from darkroom.models.decoder.sample import CascadeStage, SampleRequest
from darkroom.models.decoder.settings import TrainDecoder, UNetSampling, few_calls
from darkroom.models.decoder.unet_settings import Drawing, UNet
from darkroom.params.stage import read_yaml
from darkroom.training.loop import train
from darkroom.training.recipe import Batch
from helpers import run, training
from models.decoder.small_decoder import IMAGES, MEAN, STD, STEPS, Rows, section, told_to, up_sampler
from models.decoder.small_unets import TOLD, normals, unet
from models.decoder.test_cascade import write
from training.toy import places, weights

ROOT = Path(__file__).parents[3]
FLOW = {"objective": "flow", "image_dropout": 0.1, "embedding_noise": 0.0}
GAUSSIAN = {**FLOW, "objective": "gaussian", "target": "v"}


def recipe(
    teacher: UNet, calls: int = 2, how: dict[str, Any] | None = None, rows: Rows | None = None, **network: Any
) -> DistilledRecipe:
    """Return what distils a small U-Net whose weights are random."""
    opened = DecoderData(PixelSpace(), Conditioner(EmbeddingScaler(MEAN, STD)), {}, 1, {}, 6, (4, 5))
    opened.rows = dict.fromkeys(("train", "val"), rows or Rows())
    config = {**vars(config_of(teacher, opened)), **network}
    facts = {"objective": teacher.diffusion.objective, "low_size": teacher.low_size}
    stage = CascadeStage("base", unet(3, **config), objective_of(teacher.diffusion, STEPS), True, facts)
    asked = {"weights": "models/decoder/base", "calls": calls, "embeddings": teacher.embeddings, "low": teacher.low}
    asked |= {"teacher": {"solver": {"flow": "euler", "gaussian": "ddim"}[facts["objective"]], **(how or {})}}
    asked |= {"diffusion": {"embedding_noise": teacher.diffusion.embedding_noise}}
    settings = like_teacher(TrainDecoder(unets={"few": asked}), "few", stage).unets["few"]
    return DistilledRecipe(stage, settings, opened, 3)


def plain(diffusion: dict[str, Any], **changes: Any) -> UNet:
    return UNet(size=8, embeddings="data/embeddings", model=section().model, diffusion=diffusion, **changes)


def batch(first: int = 0, last: int = IMAGES, rows: Rows | None = None, start: int = 0) -> Batch:
    """Return rows at the same places of the training sequence, counted from `start`."""
    data = (rows or Rows()).__getitems__(range(first, last))
    return Batch(np.arange(start + first, start + last), {name: torch.as_tensor(value) for name, value in data.items()})


class Halves(Rows):
    """Pictures whose upper half is black or white as the embedding says, and the lower one at random."""

    def __init__(self) -> None:
        super().__init__()
        halves = np.stack([self.all["image"][:, 0] > 0, np.arange(IMAGES) % 2], axis=1)  # (N, 2)
        rows = (halves * 200 + 27).astype(np.uint8).repeat(8, axis=1)[:, None, :, None]
        self.all["images"] = np.broadcast_to(rows, (IMAGES, 1, 16, 16)).copy()


def fitted(made: Any, network: nn.Module, rows: Rows, rate: float, steps: int) -> None:
    optimizer = torch.optim.Adam(network.parameters(), lr=rate)
    for step in range(steps):
        optimizer.zero_grad()
        made.loss(batch(rows=rows, start=step * IMAGES))["loss"].backward()
        optimizer.step()


@pytest.mark.parametrize("diffusion", [FLOW, {**GAUSSIAN, "target": "x0", "variance": "learned_range"}])
def test_two_calls_come_nearer_to_the_guided_teacher(diffusion: dict[str, Any]) -> None:
    """What it is for: the distance of two unguided calls to four guided steps of the teacher falls to a fraction."""
    rows, guidance = Halves(), 3.0
    made = recipe(plain(diffusion), how={"steps": 4, "guidance": guidance}, rows=rows)
    parts = made.objective, made.drawing.space, made.drawing.conditioner
    fitted(DecoderRecipe(made.teacher, plain(diffusion), *parts, 3, rows, rows), made.teacher, rows, 5e-3, 40)
    made.model.load_state_dict(made.teacher.state_dict())
    noise, seen = normals(1, IMAGES, 1, 8, 8), batch(rows=rows)
    conditions = made.drawing.given(seen, made.drawing.draw(seen, "val"), drops=False, crops=False)[2]
    denoise = unet_denoiser(made.teacher, made.objective, conditions, Guidance(guidance), clip_x0)
    goal = sample(denoise, noise, made.objective, made.how)

    def distance() -> float:
        few = few_calls(UNetSampling(), diffusion["objective"], 2)
        found = sample(unet_denoiser(made.model, made.objective, conditions), noise, made.objective, few)
        return float((found.clamp(-1, 1) - goal).square().mean())

    before = distance()
    fitted(made, made.model, rows, 2e-3, 20)
    assert distance() < 0.7 * before
    found = made.validate(seen)
    assert len(found["loss"]) == IMAGES == len(found["loss_call_1"]) + len(found["loss_call_2"])
    assert made.preview().shape == (40, 1, 8, 8) and made.strip().shape == (10, 1, 8, 8)
    assert made.originals().shape == (10, 1, 8, 8)


def test_the_teacher_stays_as_it_is_and_nothing_drops() -> None:
    made = recipe(plain(FLOW), how={"steps": 4, "guidance": 2.0}, dropout=0.5)
    before = deepcopy(made.teacher.state_dict())
    made.model.train()
    first, again = (made.loss(batch())["loss"] for _ in range(2))
    assert first.item() == again.item()
    again.backward()
    assert all(parameter.grad is None for parameter in made.teacher.parameters())
    assert all(torch.equal(value, before[name]) for name, value in made.teacher.state_dict().items())
    assert all(torch.equal(value, before[name]) for name, value in made.model.state_dict().items()), "it begins with it"


def test_an_image_meets_the_same_call_noise_and_conditions_in_any_batch() -> None:
    """Of an up-sampler, whose small image is blurred and noised as in the teacher's training."""
    made = recipe(up_sampler({"noise": 0.5, "blur": 0.5}, diffusion=FLOW), how={"steps": 4})
    calls = told_to(made)  # type: ignore[arg-type]
    made.loss(batch())
    made.loss(batch(5, 7))
    whole, part = calls
    assert torch.equal(whole["steps"][5:7], part["steps"])
    for one, other in (
        (whole["x"], part["x"]),
        (whole["told"].low, part["told"].low),
        (whole["told"].low_noise, part["told"].low_noise),
    ):
        torch.testing.assert_close(one[5:7], other, atol=1e-6, rtol=0)
    assert whole["told"].image_kept is None and len(whole["told"].low_noise.unique()) == IMAGES
    assert set(whole["steps"].tolist()) == {1000.0, 500.0}


def test_squares_are_distilled_where_the_teacher_learned_of_squares() -> None:
    made = recipe(up_sampler({"crop": 8}, diffusion=FLOW), how={"steps": 4})
    calls = told_to(made)  # type: ignore[arg-type]
    made.loss(batch())
    made.validate(batch())
    assert [call["x"].shape[-1] for call in calls] == [8, 16]


@pytest.mark.parametrize("diffusion", [FLOW, GAUSSIAN])
def test_a_killed_training_continues_bit_for_bit(tmp_path: Path, diffusion: dict[str, Any]) -> None:
    def made(hook: Any = None) -> DistilledRecipe:
        settings = up_sampler({"noise": 0.5, "blur": 0.5, "crop": 8}, diffusion=diffusion)
        return recipe(settings, how={"steps": 4, "guidance": 1.0}, rows=Rows(hook))

    def stop(seen: int) -> None:
        if seen == 16:
            os.kill(os.getpid(), signal.SIGTERM)

    how = training(images=40, learning_rate=0.001)
    whole = train(made(), how, run(), places(tmp_path / "whole"))
    with pytest.raises(SystemExit):
        train(made(stop), how, run(), places(tmp_path / "killed"))
    again = train(made(), how, run(), places(tmp_path / "killed"))
    assert weights(again) == weights(whole) and again.records == whole.records


# ----------------------------------------------------------------------------------------------------------------------
# In the cascade


def written(root: Path, **changes: Any) -> None:
    """Write a cascade of base and up, and what was distilled of base."""
    flow = {"objective": "flow", "prediction": {}}
    write(root, "base", unet(**TOLD), **flow)
    write(root, "up", unet(seed=1, size=16, low=True, low_noise=True), clip=None, low_size=8)
    facts = {"calls": 2, "teacher": "base", "teacher_manifest": manifest_hash(root / "base")} | changes
    write(root, "few", unet(seed=2, **TOLD), **flow, **facts)


def test_it_takes_the_place_of_its_teacher_in_its_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path)
    cascade = Cascade.open(("base", "up", "few"), "ema", tmp_path)
    assert [stage.name for stage in cascade.stages] == ["few", "up"]
    calls: list[tuple[int, int]] = []
    forward = DecoderUNet.forward
    monkeypatch.setattr(
        DecoderUNet, "forward", lambda self, x, *rest: (calls.append(tuple(x.shape[::2])), forward(self, x, *rest))[1]
    )
    how = UNetSampling(solver="ddim", steps=3, guidance=2.0)
    request = SampleRequest([0, 1], 3 * normals(0, 2, 6))
    found = cascade.sample(request, {"few": how, "up": how}, 0, torch.device("cpu"))
    assert calls == [(2, 8)] * 2 + [(2, 16)] * 3, "two calls, unguided, whatever is asked for; then the other U-Net"
    assert found.shape == (2, 1, 16, 16)
    assert cascade.stages[0].stream == "decoder/base", "from the noise of its teacher"
    assert cascade.stages[0].calls == 2 and cascade.stages[1].calls is None


def test_what_is_distilled_stays_within_the_range_of_pixels(tmp_path: Path) -> None:
    write(tmp_path, "base", unet(**TOLD), objective="flow", prediction={})
    loud = unet(seed=2, **TOLD)
    for parameter in loud.unet.conv_out.parameters():
        nn.init.normal_(parameter, std=3.0)
    facts = {"calls": 1, "teacher": "base", "teacher_manifest": manifest_hash(tmp_path / "base")}
    write(tmp_path, "few", loud, objective="flow", prediction={}, **facts)
    cascade = Cascade.open(("base", "few"), "ema", tmp_path)
    request = SampleRequest([0, 1], normals(0, 2, 6))
    found = cascade.sample(request, {"few": UNetSampling()}, 0, torch.device("cpu"))
    assert found.abs().max() == 1


def test_of_another_teacher_nothing_is_drawn(tmp_path: Path) -> None:
    written(tmp_path, teacher_manifest="0" * 64)
    with pytest.raises(ArtifactError, match=r"few is not distilled from .*base: .*train_decoder@few"):
        Cascade.open(("base", "up", "few"), "ema", tmp_path)


def test_nothing_is_filled_in_by_few_calls(tmp_path: Path) -> None:
    written(tmp_path)
    cascade = Cascade.open(("base", "few"), "ema", tmp_path)
    request = SampleRequest([0], normals(0, 1, 6), known=torch.zeros(1, 1, 8, 8), mask=torch.ones(1, 1, 8, 8))
    with pytest.raises(
        ArtifactError, match=r"a distilled U-Net fills nothing in: set `train_decoder\.unets\.few\.trained`"
    ):
        cascade.sample(request, {"few": UNetSampling()}, 0, torch.device("cpu"))


# ----------------------------------------------------------------------------------------------------------------------
# Sections that must fit

FEW = {"weights": "models/decoder/base", "calls": 4, "embeddings": "data/embeddings", "clip": "data/none"}
OWN = {"diffusion": {"embedding_noise": 0.0}}


def asked(changes: dict[str, object] | None = None) -> dict[str, Any]:
    """Return the default values with base distilled into `few`, and changes by dotted key."""
    values = read_yaml(ROOT / "params.yaml")
    values["train_decoder"]["unets"]["few"] = deepcopy(FEW)
    values["sample_decoder"]["pictures"] = {"inpainted": 0}
    for key, value in (changes or {}).items():
        *path, last = key.split(".")
        place = values
        for name in path:
            place = place.setdefault(name, {})
        place[last] = value
    return values


def test_what_a_section_leaves_out_is_that_of_its_teacher() -> None:
    decoder = validated(asked()).train_decoder
    base, few = decoder.unets["base"], decoder.unets["few"]
    assert (few.size, few.low_size, few.model) == (16, None, base.model)
    assert few.diffusion.prediction() == base.diffusion.prediction()
    assert few.calls == 4 and few.teacher == Drawing() and few.training == {}
    fits(validated(asked()))
    fits(validated(completed(asked())))


def test_alone_a_section_is_valid_as_its_stage_sees_it() -> None:
    up = {**FEW, "embeddings": "data/none", "low": {"noise": 0.5, "crop": 16}, "calls": 1}
    for own in (FEW, up):
        assert TrainDecoder(unets={"few": own}).unets["few"].calls == own["calls"]


def test_of_two_up_samplers_the_distilled_one_is_as_its_teacher() -> None:
    few = {"weights": "models/decoder/up", "calls": 2, "embeddings": "data/none", "clip": "data/none"}
    how = {"teacher": {"steps": 8, "guidance": 1.0}, "low": {"noise": 0.5}}
    fits(validated(asked({"train_decoder.unets.few": few | how})))
    with pytest.raises(
        DarkroomError, match=r"unets\.few\.low\.noise` is 0\.0, and that of its teacher.* is 0\.5: set it"
    ):
        fits(validated(asked({"train_decoder.unets.few": few | {"teacher": how["teacher"]}})))


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"weights": "data/none"},
            "set the latter to models/decoder/base or models/decoder/up, which is then distilled. If few",
        ),
        ({"weights": "elsewhere/models/decoder/base"}, "no other U-Net without calls"),
        ({"weights": "models/decoder/few"}, "no other U-Net without calls"),
        (
            {"size": 32},
            r"few.size` is 32, and that of its teacher, `train_decoder.unets.base.size`, is 16",
        ),
        ({"low_size": 8}, "few.low_size` is 8, and that of its teacher"),
        ({"model": {"layers": 2}}, "few.model.layers` is 2, and that of its teacher"),
        ({"diffusion": {"objective": "flow"}}, "few.diffusion.objective` is flow, and that of its teacher"),
        ({"diffusion": {"target": "v"}}, "few.diffusion.target` is v, and that of its teacher"),
        ({"embeddings": "data/none", "clip": "models/clip"}, "few.embeddings` is data/none, and that of its teacher"),
        ({"teacher": {"solver": "ddpm"}}, "few.teacher.solver` is ddpm, which adds noise on the way"),
        ({"teacher": {"solver": "ddim", "eta": 1.0}}, r"few.teacher.eta` is 1.0, which adds noise .* to 0.0"),
        ({"teacher": {"solver": "euler"}}, "few.teacher.solver` is euler, and .*objective` is gaussian"),
        ({"teacher": {"spacing": "leading"}}, "few.teacher.spacing` is leading"),
        ({"teacher": {"solver": "ddim", "steps": "ddim50"}}, "few.teacher.steps` is ddim50"),
        ({"augment": {"mirror": 0.5}}, "few.augment.mirror` changes the images"),
        ({"low": {"crop": 8}}, "few.low.crop` is 8, and that of its teacher"),
        ({"diffusion": {"time_units": "sit"}}, "few.diffusion.time_units` is sit, and that of its teacher"),
        ({"teacher": {"steps": 4}}, r"few.calls` is 4, no fewer than `train_decoder.unets.few.teacher.steps` \(4\)"),
    ],
)
def test_what_cannot_be_distilled_is_said_before_anything_runs(changes: dict[str, object], sentence: str) -> None:
    values = asked({f"train_decoder.unets.few.{key}": value for key, value in changes.items()})
    with pytest.raises(DarkroomError, match=sentence):
        fits(validated(values))


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"train_decoder.unets.base.trained": False}, "no other U-Net without calls that has weights"),
        (
            {"train_decoder.unets.two": {**FEW, "weights": "models/decoder/few"}},
            "no other U-Net without calls that has weights: set the latter to models/decoder/base",
        ),
        ({"train_decoder.unets.two": FEW}, "few and two both distil base"),
        ({"train_decoder.unets.base.model.self_condition": True}, "model.self_condition` is true: set it to false"),
        ({"train_decoder.unets.base.diffusion.target": "eps"}, "is eps, which says nothing of data at pure noise"),
        (
            {"train_decoder.unets.base.diffusion.embedding_noise": 0.2},
            "few.diffusion.embedding_noise` is 0.5, and that",
        ),
        (
            {"train_decoder.unets.base.diffusion.image_dropout": 0.0},
            "few.teacher.guidance` is 2.0, and .*image_dropout",
        ),
        ({"train_decoder.unets.base.calls": 4}, r"base itself is to be distilled, .* `weights: models/decoder/base`"),
        (
            {"train_decoder.unets": {"base": FEW}, "sample_decoder.unets": {}},
            "set the latter to a trained U-Net without calls",
        ),
        (
            {"sample_decoder.unets.few.steps": 8},
            r"sample_decoder.unets.few.steps` is 8, and .*calls` is 4, which draw unguided",
        ),
        (
            {"sample_decoder.pictures.inpainted": 3},
            "inpainted` is 3, and .*few.calls` is 4, and only Gaussian diffusion fills in",
        ),
    ],
)
def test_what_does_not_fit_is_said_before_anything_runs(changes: dict[str, object], sentence: str) -> None:
    with pytest.raises(DarkroomError, match=sentence):
        fits(validated(asked(changes)))


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"calls": 17}, "few.calls` is 17"),
        ({"calls": 0}, "few.calls` is 0"),
        ({"calls": None, "size": 16, "teacher": {"steps": 8}}, "teacher is read with calls only: set calls"),
        ({"grids": {"steps": 8}}, "grids.steps has no effect with calls"),
    ],
)
def test_what_is_not_valid_by_itself(changes: dict[str, object], sentence: str) -> None:
    with pytest.raises(DarkroomError, match=sentence):
        validated(asked({f"train_decoder.unets.few.{key}": value for key, value in changes.items()}))


def test_one_that_is_not_trained_leaves_all_to_its_teacher() -> None:
    found = validated(asked({"train_decoder.unets.few.trained": False}))
    assert "few" not in found.train_decoder.cascade(True)
    fits(found)
