"""`darkroom export`: other programs get the same network, the same latents and the same images."""

import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from diffusers import DiffusionPipeline, DiTPipeline
from diffusers.models.transformers.dit_transformer_2d import DiTTransformer2DModel

from darkroom.artifacts.manifest import file_hashes, write_manifest
from darkroom.cli import main
from darkroom.data.images import ImageSpec
from darkroom.diffusion.settings import Diffusion
from darkroom.errors import DarkroomError
from darkroom.models.generators.dit.network import DiT
from darkroom.models.generators.dit.published import to_published
from darkroom.models.generators.dit.sample import DiTSampler
from darkroom.models.generators.dit.settings import DiTDiffusion, DiTSampling
from darkroom.models.tokenizers.kl.network import KLAutoencoder, build
from darkroom.models.tokenizers.protocol import load_tokenizer
from darkroom.params.training import Init
from darkroom.tools.export.command import export
from darkroom.tools.export.diffusers_folder import scaled_vae
from darkroom.training.initial import initialise
from helpers import DIGITS
from models.generators.small_published import DDIM, FIXED, MODEL, small, trained, write_clone, write_pt
from models.tokenizers.sections import kl

ROOT = Path(__file__).parents[2]
CLASSES = ["an ape", "a bee", "a cat"]
MEAN, STD = [0.5, -1.0], [2.0, 0.25]
GAUSSIAN = DiTDiffusion(objective="gaussian", schedule="linear", target="eps", variance="learned_range", timesteps=100)
FLOW = DiTDiffusion(objective="flow", time_shift=2.0)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for file in (DIGITS, ROOT / "dvc.yaml"):
        shutil.copy(file, file.name)
    return tmp_path


def written(model: DiT, diffusion: Diffusion = GAUSSIAN, mean=MEAN, std=STD, **tokenizer_settings: Any) -> DiT:
    """Write a tokenizer and a generator."""
    torch.manual_seed(1)
    tokenizer = KLAutoencoder(build(kl(**tokenizer_settings), 3, 8))
    folder = Path("models/tokenizer")
    tokenizer.save_pretrained(folder)
    write_manifest(folder, "tokenizer", tokenizer_kind="kl", image_shape=[3, 8, 8], files=file_hashes(folder))
    _write_generator(model, diffusion, mean, std)
    return model


def _write_generator(model: DiT, diffusion: Diffusion, mean, std) -> None:
    folder = Path("models/generator")
    model.save_pretrained(folder)
    write_manifest(
        folder,
        "generator",
        generator_kind="dit",
        classes=CLASSES,
        image=ImageSpec(8, "RGB", "png").metadata(),
        latent_shape=[2, 4, 4],
        latent_mean=mean,
        latent_std=std,
        **diffusion.prediction(),
        images_seen=1234,
        tokenizer=load_tokenizer(Path("models/tokenizer"))[1],
        files=file_hashes(folder),
    )


def opened(out: str = "export") -> Any:
    pipeline = DiffusionPipeline.from_pretrained(out, trust_remote_code=True)
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def sampler() -> DiTSampler:
    manifest = json.loads(Path("models/generator/manifest.json").read_text())
    tokenizer, _ = load_tokenizer(Path("models/tokenizer"))
    return DiTSampler.open(Path("models/generator"), manifest, tokenizer, "ema")


def same(one, other):
    return one.keys() == other.keys() and all(torch.equal(value, other[name]) for name, value in one.items())


@pytest.mark.parametrize(
    ("form", "learned"),
    [("diffusers", True), ("diffusers", False), ("pt", True), ("pt", False), ("safetensors", True)],
)
def test_what_is_exported_is_read_again_with_the_same_bits(form, learned):
    model = written(small(3, learned), GAUSSIAN if learned else FLOW)
    export(Path("export"), form)
    other = small(3, learned)
    for parameter in other.parameters():
        torch.nn.init.zeros_(parameter)
    initialise({"dit": other}, Init(folder="export"))
    assert same(other.state_dict(), model.state_dict())


def test_a_pt_holds_the_names_of_the_paper_s_code_and_no_code():
    model = written(small(3))
    export(Path("export"), "pt")
    found = torch.load("export/model.pt", weights_only=True)
    assert same(found, to_published(model.state_dict())) and found["pos_embed"].shape == (1, 4, 16)


def test_a_published_pt_that_was_taken_as_it_is_leaves_with_the_same_bits(here, monkeypatch):
    monkeypatch.setenv("DVC_ROOT", str(here))
    source = write_pt(here / "some.pt", small(len(write_clone())))
    trained("pretrained", name=None, folder=str(source), heads=2, latent_scale=0.18215)
    export(Path("export"), "pt")
    assert same(torch.load("export/model.pt", weights_only=True), torch.load(source, weights_only=True))
    export(Path("pipeline"), "diffusers")
    assert opened("pipeline").vae.config.scaling_factor == 0.18215
    trained("dit", str(source), model=MODEL, diffusion=FIXED, sampling=DDIM)
    export(Path("trained"), "pt")
    assert Path("trained/model.pt").is_file()


def test_diffusers_transformer_answers_as_ours():
    model = written(small(3))
    export(Path("export"), "diffusers")
    transformer = opened().transformer
    assert isinstance(transformer, DiTTransformer2DModel)
    x, t, labels = torch.randn(6, 2, 4, 4), torch.tensor([0, 1, 37, 50, 98, 99]), torch.tensor([0, 1, 2, 3, 1, 0])
    with torch.no_grad():
        expected, found = model(x, t, labels), transformer(x, timestep=t, class_labels=labels).sample
    assert torch.allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("diffusion", "solver", "guidance"),
    [
        (GAUSSIAN, "ddim", 1.0),
        (GAUSSIAN, "ddim", 1.5),
        (GAUSSIAN.model_copy(update={"target": "v", "schedule": "sigmoid"}), "ddim", 1.5),
        (GAUSSIAN.model_copy(update={"target": "x0"}), "ddim", 1.5),
        (FLOW, "euler", 1.5),
    ],
)
def test_the_pipeline_makes_the_latents_and_images_of_our_sampler(diffusion, solver, guidance):
    patched = {"channels": [8], "patch": 2} if diffusion is FLOW else {}
    written(small(3, diffusion is not FLOW), diffusion, **patched)
    export(Path("export"), "diffusers")
    noise, labels = torch.randn(4, 2, 4, 4), [0, 1, 2, 1]
    how = DiTSampling(solver=solver, steps=10, guidance=guidance)
    latents = sampler().latents(noise, torch.tensor(labels), [0] * 4, how)
    given = {"guidance_scale": guidance, "num_inference_steps": 10, "latents": noise}
    normalised = opened()(labels, output_type="latent", **given).images
    scale = torch.tensor(STD)[:, None, None], torch.tensor(MEAN)[:, None, None]
    found = normalised * scale[0] + scale[1]
    assert torch.allclose(found, latents, rtol=1e-4, atol=1e-4 * float(latents.abs().max()))
    images = torch.from_numpy(opened()(labels, output_type="np", **given).images).permute(0, 3, 1, 2)
    ours = sampler().tokenizer.decode(latents).float() / 255
    assert (images - ours).abs().max() < 1.01 / 255 and ours.std() > 0.01


def test_the_channels_that_are_guided_are_those_of_our_sampler():
    written(small(3))
    export(Path("export"), "diffusers")
    noise, how = torch.randn(1, 2, 4, 4), DiTSampling(solver="ddim", steps=5, guidance=3.0, guidance_channels=1)
    ours = sampler().scaler(sampler().latents(noise, torch.tensor([1]), [0], how))
    given = {"guidance_scale": 3.0, "num_inference_steps": 5, "latents": noise, "output_type": "latent"}
    found = opened()([1], guidance_channels=1, **given).images
    assert torch.allclose(found, ours, rtol=1e-3, atol=1e-4 * float(ours.abs().max()))
    assert not torch.allclose(opened()([1], **given).images, ours, rtol=1e-2)


def test_by_its_own_class_the_folder_gives_the_same_pipeline():
    """`DiTPipeline` alone would take class 1000 for the null class."""
    written(small(3))
    export(Path("export"), "diffusers")
    pipeline = DiTPipeline.from_pretrained("export", trust_remote_code=True)
    assert type(pipeline).__name__ == "DarkroomDiTPipeline" and pipeline.labels == {"a bee": 1, "a cat": 2, "an ape": 0}
    assert pipeline.get_label_ids(["a cat"]) == [2]


def test_the_autoencoder_says_how_its_latents_are_normalised():
    network = build(kl(), 3, 8)
    made = scaled_vae(network, MEAN, STD)
    assert (made.config.scaling_factor, made.config.latents_mean, made.config.latents_std) == (1.0, MEAN, STD)
    assert same(made.state_dict(), network.state_dict())


def test_one_scale_for_all_channels_leaves_the_autoencoder_as_it_is():
    network = build(kl(), 3, 8)
    made = scaled_vae(network, [0.0, 0.0], [1 / 0.18215] * 2)
    assert made.config.scaling_factor == 0.18215 and made.config.latents_mean is None
    assert same(made.state_dict(), network.state_dict())


def test_the_example_runs_without_darkroom(here, monkeypatch):
    written(small(3))
    assert main(["export"]) == 0
    example = re.findall(
        r"```python\n(from diffusers.*?)```", (ROOT / "docs/how-to/published-weights.md").read_text(), re.DOTALL
    )[0]
    for name in list(sys.modules):
        if name.partition(".")[0] == "diffusers_modules":  # code of a pipeline that was opened before
            monkeypatch.delitem(sys.modules, name)
        elif name.partition(".")[0] == "darkroom":
            monkeypatch.setitem(sys.modules, name, None)  # to import it is an error
    exec(example, {})
    assert Path("image.png").is_file()


@pytest.mark.parametrize(
    ("switch", "value"),
    [
        ("norm", "rms"),
        ("mlp", "swiglu"),
        ("rope", True),
        ("qk_norm", True),
        ("patch_bottleneck", 6),
        ("condition", "none"),
    ],
)
def test_a_switch_that_the_formats_cannot_hold_names_its_key(switch, value):
    model = written(small(3, **{switch: value}))
    for form in ("pt", "diffusers"):
        with pytest.raises(
            DarkroomError, match=rf"`train_generator\.dit\.model\.{switch}` is {value}.*--format safetensors"
        ):
            export(Path("export"), form)
        assert not Path("export").exists()
    export(Path("export"), "safetensors")
    assert same(DiT.from_pretrained(Path("export")).state_dict(), model.state_dict())


@pytest.mark.parametrize(
    ("model", "diffusion", "sentence"),
    [
        ({"mlp_ratio": 2.0}, GAUSSIAN, r"`train_generator\.dit\.model\.mlp_ratio` is 2"),
        ({"learned": False}, DiTDiffusion(objective="flow", path="gvp"), r"straight path.*`path` gvp"),
        ({"learned": False}, DiTDiffusion(objective="flow", flow_target="x0"), r"`flow_target` x0"),
    ],
)
def test_what_diffusers_has_not_names_the_key(model, diffusion, sentence):
    written(small(3, **model), diffusion)
    with pytest.raises(DarkroomError, match=sentence):
        export(Path("export"), "diffusers")
    export(Path("export"), "pt")


def test_another_table_of_positions_goes_into_a_pt_alone():
    model = small(3)
    model.positions = model.positions.roll(8, dims=1)
    written(model)
    with pytest.raises(DarkroomError, match="position table"):
        export(Path("export"), "diffusers")
    export(Path("export"), "pt")


def test_a_folder_that_is_there_is_left_alone(capsys):
    written(small(3))
    Path("export").mkdir()
    Path("export/mine").touch()
    assert main(["export"]) == 1
    assert "export already exists" in capsys.readouterr().err and Path("export/mine").exists()


def test_a_tokenizer_of_another_training_is_refused():
    written(small(3))
    folder = Path("models/tokenizer")
    write_manifest(folder, "tokenizer", tokenizer_kind="kl", image_shape=[3, 8, 8], files=file_hashes(folder), more=1)
    with pytest.raises(DarkroomError, match="another tokenizer"):
        export(Path("export"), "diffusers")


def test_another_tokenizer_than_a_kl_autoencoder_has_no_pipeline(monkeypatch):
    written(small(3))
    _, identity = load_tokenizer(Path("models/tokenizer"))
    monkeypatch.setattr("darkroom.tools.export.command.load_tokenizer", lambda *_: (object(), identity))
    with pytest.raises(DarkroomError, match=r"not a KL autoencoder.*`train_tokenizer.kind`: kl"):
        export(Path("export"), "diffusers")
    export(Path("export"), "pt")


def test_a_generator_of_another_kind_leaves_as_it_is_stored():
    written(small(3))
    folder = Path("models/generator")
    manifest = json.loads((folder / "manifest.json").read_text())
    facts = {name: value for name, value in manifest.items() if name not in ("kind", "format", "seal")}
    write_manifest(folder, "generator", **{**facts, "generator_kind": "masked"})
    with pytest.raises(DarkroomError, match="the kind `masked`, which the format pt does not support"):
        export(Path("export"), "pt")
    export(Path("export"), "safetensors")
    for name in ("config.json", "model.safetensors"):
        assert (Path("export") / name).read_bytes() == (folder / name).read_bytes()


@pytest.mark.parametrize("out", ["models/generator/exported", "samples"])
def test_an_output_of_a_stage_is_no_place(out: str) -> None:
    with pytest.raises(DarkroomError, match=r"which the stage .* writes"):
        export(Path(out), "safetensors")


def test_raw_weights_are_those_of_the_last_step():
    model = written(small(3))
    with pytest.raises(DarkroomError, match="has no raw weights: use --weights ema"):
        export(Path("raw"), "safetensors", "raw")
    other = small(3)
    other.load_state_dict({name: 0.5 * tensor for name, tensor in model.state_dict().items()})
    other.save_pretrained(Path("models/generator/raw"))
    assert main(["export", "--out", "raw", "--format", "safetensors", "--weights", "raw"]) == 0
    assert main(["export", "--out", "ema", "--format", "safetensors"]) == 0
    assert same(DiT.from_pretrained(Path("raw")).state_dict(), other.state_dict())
    assert same(DiT.from_pretrained(Path("ema")).state_dict(), model.state_dict())
