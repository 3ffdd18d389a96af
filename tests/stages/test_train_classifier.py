"""The stage `train_classifier`: it trains where samples are guided by it, and what it makes guides them."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from darkroom.artifacts.manifest import open_artifact, read_manifest
from darkroom.data.catalog import load_catalog
from darkroom.data.latents import LatentShards
from darkroom.diffusion.objectives import stored_objective
from darkroom.diffusion.scalers import LatentScaler
from darkroom.models.generators.dit.classifier import Classifier, ClassifierConfig, ClassifierRecipe
from darkroom.models.generators.dit.settings import DiTDiffusion
from darkroom.models.generators.settings import ClassifierParams
from darkroom.params.section import validate
from darkroom.stages import train_classifier
from darkroom.training.recipe import Batch
from helpers import run, training
from models.generators.small_published import write_clone

SHAPE = (2, 4, 4)


def recipe(**diffusion):
    torch.manual_seed(0)
    model = Classifier(ClassifierConfig(2, 4, 3, 16, 1, 2, 2))
    made = DiTDiffusion(**{"normalise": "channel", **diffusion})
    return ClassifierRecipe(model, made, 5, [], [], LatentScaler([0.5, -1.0], [2.0, 3.0]))


def batch(count):
    """Return latents whose class shifts them."""
    rng = np.random.default_rng(0)
    labels = torch.arange(count) % 3
    mean = torch.from_numpy(rng.normal(size=(count, *SHAPE)).astype(np.float32)) * 0.3
    data = {"mean": mean + 4 * (labels[:, None, None, None] - 1), "labels": labels}
    return Batch(np.arange(count), {**data, "logvar": torch.full((count, *SHAPE), -4.0)})


@pytest.mark.parametrize("diffusion", [{}, {"objective": "gaussian", "timesteps": 100}])
def test_it_learns_and_is_surest_where_there_is_little_noise(diffusion):
    made, given = recipe(**diffusion), batch(600)
    optimizer = torch.optim.Adam(made.model.parameters(), lr=3e-3)
    for _ in range(40):
        loss = made.loss(given)["loss"]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        found = {name: float(values.mean()) for name, values in made.validate(given).items()}
    assert found["accuracy"] > 0.6 and found["accuracy_time_0_25"] > 0.95
    assert found["accuracy_time_0_25"] > found["accuracy_time_75_100"] + 0.1
    assert sum(len(each) for name, each in made.validate(given).items() if "time" in name) == 600


def test_times_are_uniform_whatever_the_generators_are():
    made = recipe(time="logit_normal", time_mean=3.0, time_std=0.1)
    seen = []
    forward = made.model.forward
    made.modules["classifier"] = lambda x, t: (seen.append(t), forward(x, t))[1]
    made.loss(batch(2000))
    assert np.histogram(seen[0].numpy(), bins=4, range=(0, 1000))[0].min() > 420


def test_an_image_meets_the_same_noise_in_any_batch():
    made, whole = recipe(), batch(8)
    seen = []
    made.modules["classifier"] = lambda x, t: (seen.append((x, t)), torch.zeros(len(x), 3))[1]
    made.loss(whole)
    made.loss(Batch(np.array([5, 6]), {name: value[5:7] for name, value in whole.data.items()}))
    (x, t), (x_part, t_part) = seen
    assert torch.equal(t[5:7], t_part)
    torch.testing.assert_close(x[5:7], x_part, atol=1e-6, rtol=0)


def test_the_gradient_leads_to_the_class():
    made, given = recipe(), batch(300)
    optimizer = torch.optim.Adam(made.model.parameters(), lr=3e-3)
    for _ in range(40):
        made.loss(given)["loss"].backward()
        optimizer.step()
        optimizer.zero_grad()
    x, t = torch.zeros(2, *SHAPE, requires_grad=True), torch.full((2,), 300.0)
    labels = torch.tensor([0, 2])
    gradient = torch.autograd.grad(made.model.log_probability(x, t, labels).sum(), x)[0]
    assert float(gradient[0].mean()) < 0 < float(gradient[1].mean())
    expected = made.model(x, t).softmax(1).log()[[0, 1], labels]
    torch.testing.assert_close(made.model.log_probability(x, t, labels), expected)


# ----------------------------------------------------------------------------------------------------------------------
# The stage


def params(classifier="models/classifier", kind="dit", **diffusion):
    return validate(
        ClassifierParams,
        {
            "run": run().model_dump(),
            "train_classifier": {
                "model": {"width": 16, "depth": 1, "heads": 2},
                "training": training(validate_every=64).model_dump(),
            },
            "train_generator": {"kind": kind, "dit": {"diffusion": diffusion}},
            "sample_generator": {"dit": {"classifier": classifier}},
        },
    )


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DVC_ROOT", str(tmp_path))
    Path("dvc.yaml").write_text("stages: {train_classifier: {cmd: x, deps: []}}\n")
    Path("params.yaml").write_text("run: {}\n")


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        (("data/none", "dit"), "`sample_generator.dit.classifier` is data/none"),
        (("models/other", "dit"), "`sample_generator.dit.classifier` is models/other"),
        (("models/classifier", "pretrained"), "`train_generator.kind` is pretrained, which no classifier guides"),
    ],
)
def test_what_guides_nothing_is_not_trained(folder, asked, reason):
    train_classifier.run(params(*asked))
    found = read_manifest(Path("models/classifier"), "classifier")
    assert (found["trained"], found["reason"]) == (False, reason)
    assert [path.name for path in Path("models/classifier").iterdir()] == ["manifest.json"]


def test_from_latents_to_a_network_of_the_generators_noise(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DVC_ROOT", str(tmp_path))
    classes = write_clone()
    asked = params(objective="gaussian", target="v", timesteps=50, normalise="channel")
    train_classifier.run(asked)
    folder = Path("models/classifier")
    found = open_artifact(folder, "classifier")
    latents = LatentShards.open_parts(list(load_catalog(shards=None).parts), "train")
    assert found["trained"] and found["classes"] == classes and found["latent_shape"] == list(latents.shape)
    assert (found["latent_mean"], found["latent_std"]) == tuple(latents.statistics)
    assert stored_objective(found, "flow").duration == 50 and found["tokenizer"] == latents.tokenizer
    assert Classifier.from_pretrained(folder).config.classes == len(classes)
    curves = {path.stem for path in Path("curves/classifier").rglob("*.tsv")}
    assert {"loss", "accuracy", "accuracy_time_0_25", "accuracy_time_75_100"} <= curves
    before = json.loads((folder / "manifest.json").read_text())["files"]
    shutil.rmtree(folder)
    shutil.rmtree(".darkroom")
    train_classifier.run(asked)
    assert json.loads((folder / "manifest.json").read_text())["files"] == before, "the same bits again"
