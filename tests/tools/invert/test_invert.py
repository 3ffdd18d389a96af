"""`darkroom invert`: to noise and back, with an error that steps make smaller, and what is refused."""

import json
import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from safetensors.torch import load_file

from darkroom.artifacts.manifest import file_hashes, write_manifest
from darkroom.cli import main
from darkroom.data.catalog_writer import write_catalog
from darkroom.data.draw import drawn
from darkroom.data.images import ImageSpec
from darkroom.data.reader import ImageShards
from darkroom.diffusion.scalers import LatentScaler
from darkroom.models.generators.dit.config import DiTConfig
from darkroom.models.generators.dit.network import DiT
from darkroom.models.generators.dit.sample import DiTSampler
from darkroom.models.tokenizers.protocol import load_tokenizer
from data.making import make_part
from helpers import DIGITS
from models.generators.models_made import enter, write_models

ROOT = Path(__file__).parents[3]
FLOW: dict[str, Any] = {"objective": "flow", "prediction": {}}
GAUSSIAN: dict[str, Any] = {
    "objective": "gaussian",
    "prediction": {"schedule": "linear", "timesteps": 1000, "target": "v", "variance": "fixed_small"},
}  # v: what follows of ε at the far end is 1 / α of its error, 150 times, which a network that knows nothing makes


def write_generator(objective: dict[str, Any], **more: Any) -> None:
    """Write a generator whose weights are all random, so that its class matters, of little enough size to be smooth."""
    torch.manual_seed(0)
    folder = Path("models/generator")
    shutil.rmtree(folder)
    model = DiT(DiTConfig(2, 8, 10, 16, 1, 2, 2, condition=more.get("condition", "class")))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    model.save_pretrained(folder)
    write_manifest(
        folder,
        "generator",
        generator_kind="dit",
        classes=list("0123456789"),
        image=ImageSpec(16, "RGB", "png").metadata(),
        latent_shape=[2, 8, 8],
        latent_mean=[0.1, -0.2],
        latent_std=[0.5, 2.0],
        tokenizer=load_tokenizer(Path("models/tokenizer"))[1],
        files=file_hashes(folder),
        **objective,
        **more,
    )


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with images, models of a flow, dvc.yaml, and a params.yaml of little work."""
    enter(tmp_path, monkeypatch)
    set_params({})
    make_part(Path("data/shards"), "one", 0, 40, spec=ImageSpec(16, "RGB", "png"))
    Path("data/catalog").mkdir()
    write_catalog(Path("data/catalog"), ["one"])
    write_models()
    write_generator(FLOW)
    return tmp_path


def set_params(diffusion: dict[str, Any], **sampling: Any) -> None:
    """Write params.yaml with what was trained and how it is sampled."""
    values = yaml.safe_load(DIGITS.read_text())
    values["run"] = {"device": "cpu"}
    values["sample_generator"]["common"]["threads"] = 1
    values["sample_generator"]["dit"] |= {"steps": 4, **sampling}
    values["train_generator"]["dit"].setdefault("diffusion", {}).update(diffusion)
    if diffusion.get("objective") == "gaussian":
        values["train_generator"]["dit"].setdefault("sampling", {}).update(solver="ddim")
    Path("params.yaml").write_text(yaml.safe_dump(values))


def of_gaussian(**sampling: Any) -> None:
    set_params({"objective": "gaussian", "schedule": "linear", "target": "v"}, **{"solver": "ddim", **sampling})
    write_generator(GAUSSIAN)


def invert(*words: str) -> tuple[list[dict[str, str]], dict[str, torch.Tensor]]:
    """Return the rows of the table, and the noise with the latents."""
    assert main(["invert", "--labels", "3", "--out", "logs/x.png", *words]) == 0
    head, *rows = [line.split("\t") for line in Path("logs/x.tsv").read_text().splitlines()]
    return [dict(zip(head, row, strict=True)) for row in rows], load_file("logs/x.safetensors")


def errors(*words: str) -> np.ndarray:
    return np.array([float(row["latent_error"]) for row in invert(*words)[0]])


@pytest.mark.parametrize(("kind", "solver"), [("flow", "euler"), ("flow", "heun"), ("gaussian", "ddim")])
def test_more_steps_lose_less(clone: Path, kind: str, solver: str) -> None:
    if kind == "gaussian":
        of_gaussian()
    found = [errors("--steps", steps, "--solver", solver, "--images", "4") for steps in ("4", "16", "64")]
    for few, more in pairwise(found):  # of first order a quarter; time is embedded too finely for the second of 4 steps
        assert (more < few / 2).all() and (more > 0).all()
    if solver == "heun":
        assert (found[2] < errors("--steps", "64", "--images", "4") / 4).all()


def test_noise_is_that_of_the_reversed_solver_and_leads_back(clone: Path) -> None:
    """By hand: Euler's steps from data to noise in float64, and the image that `sample_generator`'s sampler makes."""
    rows, found = invert("--images", "5", "--steps", "3")
    tokenizer, _ = load_tokenizer(Path("models/tokenizer"))
    shards = ImageShards.open_parts(["one"], "test")
    images = torch.from_numpy(shards.__getitems__(drawn(len(shards), 5)))
    data = LatentScaler([0.1, -0.2], [0.5, 2.0])(tokenizer.encode(images)[0])
    torch.testing.assert_close(found["latents"], data, rtol=1e-4, atol=1e-5)
    model, x, labels = DiT.from_pretrained(Path("models/generator")).double(), data.double(), torch.full((5,), 3)
    with torch.no_grad():
        for step in range(3):
            x = x + 1 / 3 * model(x, torch.full((5,), 1000 * step / 3).double(), labels)
    torch.testing.assert_close(found["noise"].double(), x, rtol=1e-4, atol=1e-4)
    back = x
    with torch.no_grad():
        for step in (3, 2, 1):
            back = back - 1 / 3 * model(back, torch.full((5,), 1000 * step / 3).double(), labels)
    lost = (back - data).flatten(1).norm(dim=1) / data.double().flatten(1).norm(dim=1)
    assert [float(row["latent_error"]) for row in rows] == pytest.approx(lost.tolist(), rel=1e-3)
    pixels = tokenizer.decode(
        back.float() * torch.tensor([0.5, 2.0])[:, None, None] + torch.tensor([0.1, -0.2])[:, None, None]
    )
    mse = (pixels.double() - images.double()).square().flatten(1).mean(1)
    assert [float(row["psnr"]) for row in rows] == pytest.approx((10 * (255**2 / mse).log10()).tolist(), rel=0.01)


def test_an_image_does_not_depend_on_the_others_or_on_the_call(clone: Path) -> None:
    """Of six images with batches of four; and both bits and files are those of another call."""
    many, noise = invert("--images", "6")
    whole = Path("logs/x.png").read_bytes(), Path("logs/x.safetensors").read_bytes()
    assert invert("--images", "6")[0] == many
    assert (Path("logs/x.png").read_bytes(), Path("logs/x.safetensors").read_bytes()) == whole
    few, alone = invert("--images", "1")
    assert few == many[:1] and torch.equal(alone["noise"][0], noise["noise"][0])


def test_images_have_their_own_class_where_none_is_given(clone: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shards = ImageShards.open_parts(["one"], "test")
    (row,) = drawn(len(shards), 1)
    key, label = shards.keys[row], str(shards.labels[row])
    assert main(["invert", "--images", "1", "--out", "logs/own.png"]) == 0
    assert Path("logs/own.tsv").read_text().splitlines()[1].startswith(f"{key}\t{label}\t")
    own = load_file("logs/own.safetensors")["noise"]
    assert label != "3" and not torch.equal(own, invert("--images", "1")[1]["noise"])
    assert capsys.readouterr().err == ""


def test_guidance_is_none_unless_asked_for(clone: Path) -> None:
    """Though params.yaml guides what it samples."""
    plain = invert("--images", "1")[1]["noise"]
    assert torch.equal(plain, invert("--images", "1", "--guidance", "1")[1]["noise"])
    assert not torch.equal(plain, invert("--images", "1", "--guidance", "2")[1]["noise"])


def test_guidance_leads_away_from_the_guide_network(clone: Path) -> None:
    """Of a guide network that is the same one there is nothing to lead away from, as there is from its null."""
    shutil.copytree("models/generator", "guide")
    words = ("--images", "1", "--guidance", "2")
    set_params({}, guide="guide")
    same = invert(*words)[1]["noise"]
    torch.testing.assert_close(same, invert("--images", "1")[1]["noise"])
    set_params({})
    assert not torch.allclose(invert(*words)[1]["noise"], same, atol=1e-3)


def test_a_stochastic_section_is_inverted_by_the_first_solver_with_a_way_back(clone: Path) -> None:
    of_gaussian()
    plain = invert("--images", "1")[1]["noise"]
    of_gaussian(eta=1.0)
    assert torch.equal(invert("--images", "1")[1]["noise"], plain)
    of_gaussian(solver="ddpm")
    assert torch.equal(invert("--images", "1")[1]["noise"], plain)


def test_a_generator_without_conditions_is_inverted_without(clone: Path, capsys: pytest.CaptureFixture[str]) -> None:
    set_params({}, guidance=1.0)
    values = yaml.safe_load(Path("params.yaml").read_text())
    values["train_generator"]["dit"].setdefault("model", {})["condition"] = "none"
    values["train_generator"]["dit"].setdefault("sampling", {})["guidance"] = 1.0
    Path("params.yaml").write_text(yaml.safe_dump(values))
    write_generator(FLOW, condition="none")
    assert main(["invert", "--images", "2", "--out", "logs/x.png"]) == 0
    assert main(["invert", "--labels", "3"]) == 1
    assert "models/generator does not read --labels (condition none): remove it" in capsys.readouterr().err


REFUSED = [
    (["--solver", "euler_maruyama"], "euler_maruyama adds noise, so its steps cannot be reversed"),
    (["--solver", "dpm"], "dpm uses previous steps, so its steps cannot be reversed: use euler or heun"),
    (["--solver", "ddim"], "use euler or heun"),
    (["--steps", "0"], "`sample_generator.dit.steps`"),
    (["--steps", "ddim50"], "steps ddim50 are for ddpm or ddim"),
    (["--labels", "13"], "the class `13`, which the generator was not trained on"),
    (["--out", "samples/generator/x.png"], "which the stage sample_generator writes"),
]


def test_what_does_not_fit_is_refused(
    clone: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DiTSampler, "latents", None)  # nothing is sampled
    answers = [(words, main(["invert", *words]), said, capsys.readouterr().err) for words, said in REFUSED]
    assert [each for each in answers if each[1] != 1 or each[2] not in each[3]] == []


@pytest.mark.parametrize("prediction", [{"flow_target": "x0"}, {"path": "vp"}])
def test_a_flow_without_a_velocity_at_data_is_refused(
    clone: Path, prediction: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    write_generator({"objective": "flow", "prediction": prediction})
    assert main(["invert", "--labels", "3"]) == 1
    assert "only a predicted velocity on the paths linear and gvp is finite" in capsys.readouterr().err


def test_a_generator_of_texts_reads_captions(clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The manifest alone is of texts: what is asked of CLIP is what the images are captioned with."""
    from darkroom.tools.invert import inverting
    from darkroom.tools.sample import texts as module

    asked: list[list[str]] = []

    def embedded(clip: Any, texts: Any, manifest: Any) -> dict[str, torch.Tensor]:
        asked.append(list(texts))
        return {"text": torch.arange(4.0 * len(texts)).reshape(-1, 4) + 1}

    monkeypatch.setattr(module, "embedded", embedded)
    monkeypatch.setattr(module, "load_clip", lambda: None)
    found = inverting.stored("test", 12)
    captions = found.captions
    manifest = json.loads(Path("models/generator/manifest.json").read_text()) | {"condition": "text"}
    condition: Any
    condition, words = inverting.conditions_of(found, manifest, None)
    assert None in captions and len(captions) == 12
    assert asked.pop() == [each or "" for each in captions] and words == [each or "no caption" for each in captions]
    assert condition.keep.tolist() == [each is not None for each in captions]
    assert condition.vector[:, 0].tolist() == [4 * at + 1 if each else 0 for at, each in enumerate(captions)]
