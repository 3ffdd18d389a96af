"""Published SiT weights: their velocity is ours after conversion, they sample, train on and leave; what is refused."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from torch import Tensor

from darkroom.check.check import validated
from darkroom.diffusion.flow import Flow
from darkroom.diffusion.objectives import stored_objective
from darkroom.diffusion.settings import Diffusion
from darkroom.errors import DarkroomError
from darkroom.models.generators.dit.network import DiT
from darkroom.models.generators.dit.sample import DiTSampler, dit_denoiser
from darkroom.models.generators.dit.settings import DiTSampling
from darkroom.models.generators.guides import require_guides
from darkroom.models.generators.pretrained.settings import Pretrained
from darkroom.models.tokenizers.protocol import load_tokenizer
from darkroom.params.section import validate
from darkroom.params.training import Init
from darkroom.tools.export.command import export
from darkroom.tools.preset import laid_over, overlay
from darkroom.training.initial import initialise
from helpers import DIGITS
from models.generators.small_published import (
    HEADS,
    MODEL,
    ROOT,
    arguments,
    reference,
    sampled,
    small,
    trained,
    write_clone,
    write_pt,
)

TIMES = [0.0, 0.03, 0.5, 0.97, 1.0]
SIT = {"objective": "flow", "time": "uniform", "time_units": "sit", "normalise": "fixed", "latent_scale": 0.5}
EULER = {"solver": "euler", "steps": 3, "guidance": 1.0}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DVC_ROOT", str(tmp_path))
    return tmp_path


def write_sit(path: Path, classes: int, learned: bool = True) -> dict[str, Tensor]:
    """Write a checkpoint of SiT's training, and return its averaged tensors, by its names."""
    write_pt(path, small(classes, learned), args={"model": "none"})
    return torch.load(path)["ema"]


def velocity(tensors: dict[str, Tensor], x: Tensor, time: Tensor, labels: Tensor) -> Tensor:
    """Return dx/ds of SiT in its time, 0 noise to 1 data: what its network says, without the second half."""
    return reference(tensors, x, time, labels)[:, : x.shape[1]]


def imported(source: Path) -> DiTSampler:
    """Return the sampler of a SiT that is taken as it is, in float64."""
    manifest = trained("pretrained", name=None, folder=str(source), heads=HEADS, objective="flow", latent_scale=0.5)
    tokenizer, _ = load_tokenizer(Path("models/tokenizer"))
    sampler = DiTSampler.open(Path("models/generator"), manifest, tokenizer, "ema")
    sampler.model.double()
    return sampler


@pytest.mark.parametrize("learned", [True, False])
def test_the_velocity_is_that_of_the_paper_s_equations(here: Path, learned: bool) -> None:
    """x_s = s x_data + (1 - s) x_noise there, so v = dx/ds = data - noise; ours in t = 1 - s is noise - data."""
    tensors = write_sit(here / "some.pt", len(write_clone()), learned)
    sampler = imported(here / "some.pt")
    torch.manual_seed(1)
    x, labels = torch.randn(3, 2, 4, 4, dtype=torch.float64), torch.tensor([0, 2, 1])
    denoise = dit_denoiser(sampler.model, sampler.objective, labels, sampler.model.null_label)
    expected = []
    for t in TIMES:
        time = torch.full((3,), t, dtype=torch.float64)
        with torch.no_grad():
            output = sampler.model(x, sampler.objective.timesteps(time), labels)
            said = denoise(x, time, None)
        theirs = velocity(tensors, x, 1 - time, labels)
        assert torch.allclose(output, -theirs, rtol=1e-6, atol=1e-6 * float(theirs.abs().max()))
        assert said.velocity is not None and torch.allclose(said.velocity.double(), -theirs, rtol=1e-5, atol=1e-5)
        assert torch.allclose(said.x0.double(), x + t * theirs, rtol=1e-5, atol=1e-5)
        expected.append(theirs)
    assert float((expected[0] - expected[-1]).abs().max()) > 1e-3 * float(expected[0].abs().max()), "time counts"

    # And samples are its steps from noise to data.
    noise = torch.randn(2, 2, 4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    labels, x = torch.tensor([1, 0]), noise
    for step in range(3):
        x = x + velocity(tensors, x, torch.full((2,), step / 3, dtype=torch.float64), labels) / 3
    made = sampler.latents(noise, labels, [0, 1], DiTSampling.model_validate(EULER))
    assert torch.allclose(made.double(), x / 0.5, rtol=1e-5, atol=1e-5)  # as the autoencoder has them


@pytest.mark.parametrize(
    "solver", ["euler_maruyama", *(pytest.param(name, marks=pytest.mark.slow) for name in ("euler", "dpm"))]
)
def test_every_solver_of_flows_samples_it(here: Path, solver: str) -> None:
    write_sit(here / "some.pt", len(write_clone()))
    trained("pretrained", name=None, folder="some.pt", heads=HEADS, objective="flow")
    assert sampled("pretrained", solver=solver, steps=3, guidance_channels=1)


def test_a_sit_trains_on(here: Path) -> None:
    """Two updates move each tensor a little from the converted ones, and the manifest says how times are embedded."""
    classes = write_clone()
    write_sit(here / "some.pt", len(classes))
    begun = DiT(small(len(classes), learned=False).config)
    begun.sit = True
    initialise({"dit": begun}, Init(folder="some.pt"))
    manifest = trained("dit", "some.pt", model=MODEL, diffusion=SIT, sampling=EULER)
    assert manifest["prediction"]["time_units"] == "sit" and manifest["latent_std"] == [2.0, 2.0]
    assert stored_objective(manifest, "gaussian").timesteps(torch.ones(1)).tolist() == [0]
    weights = DiT.from_pretrained(Path("models/generator")).state_dict()
    for name, value in begun.state_dict().items():
        moved = float((weights[name] - value).abs().max())
        assert moved <= 0.01 and (moved > 0 or name == "positions"), name
    assert sampled("dit", **EULER)


def test_a_sit_leaves_as_it_came(here: Path) -> None:
    tensors = write_sit(here / "some.pt", len(write_clone()), learned=False)
    trained("pretrained", name=None, folder="some.pt", heads=HEADS, objective="flow")
    export(here / "out", "pt")
    found = torch.load(here / "out/model.pt")
    assert found.keys() == tensors.keys() and all(torch.equal(found[name], tensors[name]) for name in tensors)
    with pytest.raises(DarkroomError, match="`time_units` sit: use --format pt or safetensors"):
        export(here / "diffusers", "diffusers")


# ----------------------------------------------------------------------------------------------------------------------


def test_the_default_s_times_are_those_of_before() -> None:
    """And its manifests too, byte for byte."""
    assert "time_units" not in Diffusion(objective="flow").prediction()["prediction"]
    t = torch.tensor([0.0, 0.25, 1.0])
    assert torch.equal(Flow().timesteps(t), 1000 * t) and Flow(units="sit").timesteps(t).tolist() == [1, 0.75, 0]


@pytest.mark.parametrize("name", ["sit-b2", "sit-xl2"])
def test_the_presets_read_published_sits(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    laid = yaml.safe_load(laid_over(DIGITS.read_text(), overlay(name)))
    diffusion = validated(laid).train_generator.dit.diffusion
    assert (diffusion.objective, diffusion.path, diffusion.flow_target) == ("flow", "linear", "velocity")
    assert (diffusion.time_units, diffusion.normalise, diffusion.latent_scale) == ("sit", "fixed", 0.18215)


def test_a_head_of_neither_size_is_refused(here: Path) -> None:
    write_clone()
    tensors = write_sit(here / "some.pt", 3)
    for name in ("final_layer.linear.weight", "final_layer.linear.bias"):
        tensors[name] = torch.cat([tensors[name], tensors[name][:8]])
    torch.save(tensors, "other.pt")
    said = r"other.pt has 24 outputs for the 2x2x2 numbers of a token, but a SiT has as many, or twice as many"
    with pytest.raises(DarkroomError, match=said):
        trained("pretrained", name=None, folder="other.pt", heads=HEADS, objective="flow")
    model = small(3, learned=False)
    model.sit = True
    with pytest.raises(DarkroomError, match=said):
        initialise({"dit": model}, Init(folder="other.pt"))


def test_another_size_is_refused(here: Path) -> None:
    write_sit(here / "some.pt", 3)
    model = small(3, learned=False, width=32)
    model.sit = True
    with pytest.raises(DarkroomError, match=r"the weights of some.pt do not fit the model:\n  shape: dit/"):
        initialise({"dit": model}, Init(folder="some.pt"))


def test_heads_are_those_that_the_arguments_name(here: Path) -> None:
    model = small(3, learned=False)
    model.sit = True
    with pytest.raises(DarkroomError, match=r"has 16 heads: .*, not 2"):
        initialise({"dit": model}, Init(folder=str(write_pt(here / "x.pt", small(3), args=arguments("SiT-XL/2")))))


@pytest.mark.parametrize(
    ("section", "said"),
    [
        (
            {"variance": "fixed_small"},
            "variance is only read with objective gaussian, but objective is flow: remove variance",
        ),
        ({"schedule": "cosine"}, "schedule is only read with objective gaussian"),
        ({"folder": "data/none", "name": "facebook/DiT-XL-2-256"}, "SiTs are .pt files"),
    ],
)
def test_keys_of_gaussian_diffusion_are_refused_beside_a_flow(section: dict[str, Any], said: str) -> None:
    with pytest.raises(DarkroomError, match=said):
        validate(Pretrained, {"objective": "flow", "name": None, "folder": "some.pt", **section})


def test_the_sampler_of_a_sit_needs_a_solver_of_flows() -> None:
    values = yaml.safe_load(DIGITS.read_text())
    values["train_generator"] |= {
        "kind": "pretrained",
        "pretrained": {"name": None, "folder": "x.pt", "objective": "flow"},
    }
    from darkroom.models.generators.fits import fits

    with pytest.raises(
        DarkroomError,
        match=r"`sample_generator.pretrained.solver` is ddpm, and `train_generator.pretrained.objective` is flow",
    ):
        fits(validated(values))
    values["sample_generator"]["pretrained"] = {"solver": "euler_maruyama"}
    fits(validated(values))


def test_a_guide_of_other_times_is_refused(here: Path) -> None:
    write_clone()
    write_sit(here / "some.pt", 3)
    trained("pretrained", name=None, folder="some.pt", heads=HEADS, objective="flow")
    wanted = json.loads(Path("models/generator/manifest.json").read_text())
    require_guides("key", Guided(), wanted)
    del wanted["prediction"]["time_units"]
    with pytest.raises(DarkroomError, match=r"with `time_units` sit, but the generator with thousand"):
        require_guides("key", Guided(), wanted)


class Guided:
    """A section of sampling that names a guide network."""

    guide = "models/generator"
