"""`train_distilled`: few calls follow the guided teacher, draw in its place, and refuse what is not theirs."""

import json
import shutil
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import yaml
from torch import nn

from darkroom.artifacts.manifest import ArtifactError, manifest_hash, open_artifact, read_manifest, write_manifest
from darkroom.artifacts.models import DISTILLED
from darkroom.check.check import validated
from darkroom.data.reader import ImageShards
from darkroom.diffusion.denoiser import denoiser
from darkroom.diffusion.flow import Flow
from darkroom.diffusion.samplers import follow, sample, times_of
from darkroom.diffusion.scalers import LatentScaler
from darkroom.diffusion.settings import Sampling
from darkroom.diffusion.types import Denoised
from darkroom.errors import DarkroomError
from darkroom.models.generators.conditions import NOTHING, Captioned, Embedded, asked_classes, balanced, rows_of
from darkroom.models.generators.dit.config import DiTConfig
from darkroom.models.generators.dit.distilled import DistilledRecipe, through
from darkroom.models.generators.dit.network import DiT
from darkroom.models.generators.dit.sample import DiTSampler
from darkroom.models.generators.dit.settings import DiTGenerated
from darkroom.models.generators.fits import fits
from darkroom.models.generators.sample_settings import Params as SampleParams
from darkroom.models.generators.settings import DistilledParams, few_calls
from darkroom.models.generators.settings import Params as GeneratorParams
from darkroom.params.section import validate
from darkroom.params.stage import read_yaml
from darkroom.stages import sample_generator, train_distilled, train_generator
from darkroom.tools.sample.classes import DISTILLED as FEW
from darkroom.tools.sample.classes import Overrides, settings_of
from darkroom.training.recipe import Batch
from helpers import DIGITS, run, training
from models.generators.small_published import VALUES, write_clone

SHAPE = (2, 4, 4)


def teacher(shift: float = 2.0, dropout: float = 0.0) -> DiTSampler:
    """Return a transformer whose every weight is random, as a sampler of a flow."""
    torch.manual_seed(0)
    model = DiT(DiTConfig(2, 4, 3, width=32, depth=2, heads=2, patch=2, dropout=dropout))
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.12)
    tokenizer = SimpleNamespace(latent_shape=SHAPE, decode=lambda x: ((x.mean(1, keepdim=True) + 2) * 60).byte())
    return DiTSampler(model, Flow(shift=shift), LatentScaler([0.5, -1.0], [2.0, 3.0]), tokenizer)


def recipe(how: DiTGenerated, calls: int = 2, **changes: object) -> DistilledRecipe:
    asked = asked_classes(balanced(3))
    data = SimpleNamespace(train=[], val=[], conditions=asked)
    return DistilledRecipe(teacher(**changes), how, calls, training(), data)


def batch(count: int, start: int = 0) -> Batch:
    rng = np.random.default_rng(0)
    mean = torch.from_numpy(rng.normal(size=(count, *SHAPE)).astype(np.float32))
    data = {"mean": mean, "logvar": torch.full_like(mean, -4.0), "labels": torch.arange(count) % 3}
    return Batch(np.arange(start, start + count), data)


@pytest.mark.parametrize("solver", ["euler", "heun"])
def test_the_ways_of_all_calls_in_turn_are_the_teachers_whole_way(solver: str) -> None:
    flow, how = Flow(shift=2.0), Sampling(solver=solver, steps=8)
    network = teacher().model

    def velocity(x: torch.Tensor, timesteps: torch.Tensor, before: object) -> torch.Tensor:
        return network(x, timesteps, torch.zeros(len(x), dtype=torch.int64))

    noise = torch.randn(4, *SHAPE, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        whole = sample(denoiser(velocity, flow), noise, flow, how)
        fine, x = times_of(flow, 8), noise
        for at in (0, 4):
            x = follow(through(solver, flow, fine[at : at + 5]), denoiser(velocity, flow), x)
    torch.testing.assert_close(x, whole, atol=1e-5, rtol=0)


def test_dpm_begins_anew_with_each_call() -> None:
    """Towards one point the ways are straight, and it makes no error between any times."""
    flow = Flow(shift=2.0)
    fine = times_of(flow, 8)

    def denoise(x: torch.Tensor, t: torch.Tensor, before: object) -> Denoised:
        x0 = torch.full_like(x, 0.25)
        return Denoised(x0, (x - x0) / t[0])

    x = torch.randn(4, *SHAPE, generator=torch.Generator().manual_seed(0))
    half = follow(through("dpm", flow, fine[:5]), denoise, x)
    torch.testing.assert_close(half, (1 - fine[4]) * 0.25 + fine[4] * x, atol=1e-5, rtol=0)
    torch.testing.assert_close(follow(through("dpm", flow, fine[4:]), denoise, half), torch.full_like(x, 0.25))


def test_the_target_is_where_the_guided_teacher_is_at_the_end_of_the_call() -> None:
    how = DiTGenerated(solver="euler", steps=5, guidance=2.0)
    made, given = recipe(how), batch(6)
    seen: dict[str, torch.Tensor] = {}
    student = made.modules["dit"]
    made.modules["dit"] = lambda x, t, y: (seen.update(x=x, t=t), student(x, t, y))[1]
    loss = made.loss(given)["loss"]
    times = times_of(made.objective, 6)  # 5 steps in two calls: 3 each
    calls = [0 if t > 999 else 1 for t in seen["t"].tolist()]
    assert set(calls) == {0, 1} and torch.allclose(seen["t"] / 1000, times[[3 * call for call in calls]])
    network, expected = made.teacher.model, []
    for row, call in enumerate(calls):
        x, labels, first = seen["x"][row : row + 1], given.data["labels"][row : row + 1], 3 * call
        with torch.no_grad():
            for at in range(first, first + 3):
                t = 1000 * times[at : at + 1]
                free, bound = network(x, t, torch.full_like(labels, network.null_label)), network(x, t, labels)
                x = x + (times[at + 1] - times[at]) * (free + 2.0 * (bound - free))
            mean = (x - seen["x"][row]) / (times[first + 3] - times[first])
            found = network(seen["x"][row : row + 1], 1000 * times[first : first + 1], labels)
        expected.append(float((found - mean).square().mean()))
    assert loss.item() == pytest.approx(np.mean(expected), rel=1e-4)


def test_an_image_meets_the_same_call_and_noise_in_any_batch() -> None:
    made, whole = recipe(DiTGenerated(steps=4, guidance=1.5)), batch(8)
    seen = []
    student = made.modules["dit"]
    made.modules["dit"] = lambda x, t, y: (seen.append((x, t)), student(x, t, y))[1]
    made.loss(whole)
    made.loss(Batch(np.array([5, 6]), {name: value[5:7] for name, value in whole.data.items()}))
    (x, t), (x_part, t_part) = seen
    assert torch.equal(t[5:7], t_part)
    torch.testing.assert_close(x[5:7], x_part, atol=1e-6, rtol=0)


def test_the_teacher_stays_as_it_is_and_nothing_drops() -> None:
    made = recipe(DiTGenerated(steps=4), dropout=0.5)
    before = deepcopy(made.teacher.model.state_dict())
    made.model.train()
    optimizer = torch.optim.Adam(made.model.parameters(), lr=1e-2)
    first, again = (made.loss(batch(8))["loss"] for _ in range(2))
    assert first.item() == again.item()
    again.backward()
    optimizer.step()
    assert made.loss(batch(8))["loss"].item() != first.item()
    assert all(parameter.grad is None for parameter in made.teacher.model.parameters())
    assert all(torch.equal(value, before[name]) for name, value in made.teacher.model.state_dict().items())


def test_targets_are_exact_under_autocast(monkeypatch: pytest.MonkeyPatch) -> None:
    made, given = recipe(DiTGenerated(steps=4)), batch(8)
    seen: list[torch.Tensor] = []
    reached = made.reached
    monkeypatch.setattr(made, "reached", lambda *of: (seen.append(reached(*of)), seen[-1])[1])
    made.loss(given)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        made.loss(given)
    assert torch.equal(*seen)


def test_two_calls_come_nearer_to_the_guided_teacher() -> None:
    """What it is for: the distance of two unguided calls to the teacher's ten guided steps falls to a fraction."""
    how = DiTGenerated(solver="euler", steps=10, guidance=2.5)
    made, given = recipe(how, calls=2), batch(48)
    noise = torch.randn(48, *SHAPE, generator=torch.Generator().manual_seed(1))
    labels = torch.arange(48) % 3
    seeds = list(range(48))
    goal = made.teacher.latents(noise, labels, seeds, how)

    def distance() -> float:
        sampler = DiTSampler(made.model, made.objective, made.teacher.scaler, made.teacher.tokenizer)
        return float((sampler.latents(noise, labels, seeds, few_calls(2)) - goal).square().mean())

    before = distance()
    optimizer = torch.optim.Adam(made.model.parameters(), lr=2e-3)
    for step in range(60):
        optimizer.zero_grad()
        made.loss(Batch(given.positions + 48 * step, given.data))["loss"].backward()
        optimizer.step()
    assert distance() < 0.2 * before
    found = made.validate(given)
    assert len(found["loss"]) == 48 == len(found["loss_call_1"]) + len(found["loss_call_2"])
    assert made.preview().shape == (30, 1, 4, 4) and made.sample_evolution().shape == (3, 1, 4, 4)


def test_without_a_condition_nothing_guides_and_it_learns_all_the_same() -> None:
    torch.manual_seed(0)
    model = DiT(DiTConfig(2, 4, 1, width=16, depth=1, heads=2, patch=2, condition="none"))
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.12)
    tokenizer = SimpleNamespace(latent_shape=SHAPE, decode=lambda x: x.mean(1, keepdim=True).byte())
    source = DiTSampler(model, Flow(), LatentScaler([0.0, 0.0], [1.0, 1.0]), tokenizer)
    named = replace(NOTHING, caption=lambda numbers: ["of a file"] * len(numbers))  # that nothing reads
    data = SimpleNamespace(train=[], val=[], conditions=named)
    made, given = DistilledRecipe(source, DiTGenerated(steps=4, guidance=1.0), 2, training(), data), batch(8)
    del given.data["labels"]
    made.loss(given)["loss"].backward()
    assert all(parameter.grad is not None for parameter in made.model.blocks.parameters())
    assert made.sample_evolution().shape == (10, 1, 4, 4) and not made.captions


def test_rows_of_every_condition() -> None:
    rows = torch.tensor([2, 0])
    assert rows_of(None, rows) is None
    assert rows_of(torch.tensor([5, 6, 7]), rows).tolist() == [7, 5]
    words = rows_of(Captioned.of([[1, 0], [0, 0], [3, 4]]), rows)
    assert words.tokens.tolist() == [[3, 4], [1, 0]] and words.keep.tolist() == [True, True]
    stored = Embedded(torch.eye(3), torch.arange(6).reshape(3, 2, 1), torch.tensor([True, False, True]))
    found = rows_of(stored, rows)
    assert found.vector.tolist() == torch.eye(3)[[2, 0]].tolist() and found.tokens.flatten().tolist() == [4, 5, 0, 1]
    assert rows_of(Embedded(torch.eye(3), None, stored.keep), rows).tokens is None


# ----------------------------------------------------------------------------------------------------------------------
# The stage


def params(kind: str = "dit", calls: int = 2, **how: object) -> DistilledParams:
    dit = {"steps": 6, "guidance": 1.5} | how
    return validate(
        DistilledParams,
        {
            "run": run().model_dump(),
            "train_distilled": {
                "kind": kind,
                **({"calls": calls} if kind == "dit" else {}),
                "training": training(validate_every=64).model_dump(),
            },
            "train_generator": {"captions": "data/none", "embeddings": "data/none"},
            "sample_generator": {kind: dit if kind == "dit" else {}},
        },
    )


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clone with a small flow that was trained on its latents."""
    folder = tmp_path_factory.mktemp("trained")
    values = deepcopy({name: VALUES[name] for name in ("run", "train_generator")})
    section = values["train_generator"]
    section["dit"] = {"model": {"width": 16, "depth": 1, "heads": 2, "patch": 2}, "diffusion": {}}
    section["training"] = training(validate_every=64).model_dump()
    stages = ("train_generator", "train_distilled", "sample_generator")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("DVC_ROOT", str(folder))
        write_clone()
        Path("dvc.yaml").write_text("".join(["stages:\n", *(f"  {name}: {{cmd: x, deps: []}}\n" for name in stages)]))
        train_generator.run(validate(GeneratorParams, values))
    return folder


@pytest.fixture
def clone(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a copy of it the working folder."""
    shutil.copytree(trained, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DVC_ROOT", str(tmp_path))


def rewrite(**changes: object) -> None:
    """Change facts in the generator's manifest."""
    folder = Path("models/generator")
    there = json.loads((folder / "manifest.json").read_text())
    facts = {name: value for name, value in there.items() if name not in ("kind", "format", "seal")}
    write_manifest(folder, "generator", **(facts | changes))


def test_nothing_to_distil_is_no_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    train_distilled.run(params("none"))
    found = read_manifest(Path("models/distilled"), DISTILLED)
    assert (found["trained"], found["reason"]) == (False, "`train_distilled.kind` is none")


def test_from_a_generator_to_images_in_two_calls(clone: None, monkeypatch: pytest.MonkeyPatch) -> None:
    train_distilled.run(params())
    folder = Path("models/distilled")
    found, whole = open_artifact(folder, DISTILLED), open_artifact(Path("models/generator"), "generator")
    assert found["trained"] and found["calls"] == 2
    assert all(found[name] == whole[name] for name in ("classes", "tokenizer", "latent_mean", "prediction"))
    curves = {path.stem for path in Path("curves/distilled").rglob("*.tsv")}
    assert {"loss", "loss_call_1", "loss_call_2"} <= curves
    first = json.loads((folder / "manifest.json").read_text())["files"]
    shutil.rmtree(folder)
    shutil.rmtree(".darkroom")
    train_distilled.run(params())
    assert json.loads((folder / "manifest.json").read_text())["files"] == first, "the same bits again"

    calls = []
    forward = DiT.forward
    monkeypatch.setattr(DiT, "forward", lambda self, *given: (calls.append(len(given[0])), forward(self, *given))[1])
    values = deepcopy({name: VALUES[name] for name in ("run", "sample_generator")})
    values["sample_generator"]["common"] |= {"images": 4, "batch": 4, "threads": 1}
    values["sample_generator"]["dit"] |= {"steps": 6}
    sample_generator.run(validate(SampleParams, values | {"train_distilled": {"kind": "dit"}}))
    assert calls == [4, 4], "two calls, unguided"
    there = json.loads(Path("samples/generator/manifest.json").read_text())
    assert there["sampler"]["steps"] == 2 and there["sampler"]["guidance"] == 1.0
    assert there["sampler"]["distilled"] == manifest_hash(folder)
    assert there["images_seen"] == 128
    few = np.concatenate(list(ImageShards.open_folder(Path("samples/generator"), "samples").batches(4)))
    calls.clear()
    shutil.rmtree(".darkroom")
    sample_generator.run(validate(SampleParams, values))
    assert calls == [8] * 6, "guided, in all steps"
    assert not np.array_equal(
        few, np.concatenate(list(ImageShards.open_folder(Path("samples/generator"), "samples").batches(4)))
    )


def test_latents_of_another_tokenizer_are_refused_before_the_training(clone: None) -> None:
    rewrite(tokenizer="0" * 64)
    with pytest.raises(DarkroomError, match="data/latents was encoded by another tokenizer than models/generator"):
        train_distilled.run(params())


def test_of_another_generator_nothing_is_drawn(clone: None) -> None:
    train_distilled.run(params())
    rewrite(images_seen=1)
    values = deepcopy({name: VALUES[name] for name in ("run", "sample_generator")})
    asked = validate(SampleParams, values | {"train_distilled": {"kind": "dit"}})
    with pytest.raises(ArtifactError, match="models/distilled was distilled from another generator"):
        sample_generator.run(asked)
    train_distilled.run(params("none"))
    with pytest.raises(ArtifactError, match=r"is empty, because `train_distilled\.kind` is none"):
        sample_generator.run(asked)


# ----------------------------------------------------------------------------------------------------------------------
# Sections that must fit


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({("train_generator", "kind"): "none"}, "`train_generator.kind` is none, which cannot be distilled"),
        (
            {
                ("train_generator", "dit", "diffusion", "objective"): "gaussian",
                ("train_generator", "dit", "sampling"): {"solver": "ddim"},
                ("sample_generator", "dit", "solver"): "ddim",
            },
            "only a flow is distilled",
        ),
        ({("sample_generator", "dit", "solver"): "euler_maruyama"}, "which adds noise, so there is"),
        (
            {
                ("sample_generator", "dit", "classifier"): "models/classifier",
            },
            "guidance by a classifier cannot be distilled",
        ),
        ({("sample_generator", "dit", "steps"): 4}, "`sample_generator.dit.steps` is 4, which must be larger"),
        ({("sample_generator", "common", "weights"): "raw"}, "only the averaged weights of the end can be distilled"),
        ({("train_generator", "dit", "diffusion", "flow_target"): "eps"}, "which is undefined at pure noise"),
    ],
)
def test_what_cannot_be_distilled_is_said_before_anything_runs(
    changes: dict[tuple[str, ...], object], sentence: str
) -> None:
    values = read_yaml(DIGITS)
    for path, value in {("train_distilled", "kind"): "dit", **changes}.items():
        section = values
        for name in path[:-1]:
            section = section.setdefault(name, {})
        section[path[-1]] = value
    with pytest.raises(DarkroomError, match=sentence):
        fits(validated(values))


@pytest.mark.parametrize("section", [{"calls": 2}, {"training": {"init": {"folder": "models/other"}}}])
def test_without_a_kind_nothing_else_is_asked_for(section: dict[str, object]) -> None:
    values = read_yaml(DIGITS)
    values["train_distilled"] |= section
    with pytest.raises(DarkroomError, match=r"train_distilled.*kind is none"):
        validated(values)


@pytest.mark.parametrize(
    ("asked", "few"),
    [
        ({}, FEW),
        ({"seed": 3}, FEW),
        *[
            (each, None)
            for each in ({"steps": "3"}, {"guidance": 1.0}, {"solver": "euler_maruyama"}, {"weights": "raw"})
        ],
    ],
)
def test_what_says_how_the_generator_draws_is_drawn_by_it(
    asked: dict[str, object], few: Path | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    values = read_yaml(DIGITS)
    values["train_distilled"]["kind"] = "dit"
    Path("params.yaml").write_text(yaml.safe_dump(values))
    assert settings_of(Overrides(**asked)).distilled == few
