"""Published autoencoders: read as they are, refused where they do not fit, and as tokenizers without a training."""

import json
from pathlib import Path

import pytest
import torch
from diffusers import AutoencoderKL
from huggingface_hub import constants
from pydantic import ValidationError

from darkroom.artifacts.manifest import read_manifest
from darkroom.check.check import read_params
from darkroom.data.catalog import Selection
from darkroom.data.images import ImageSpec
from darkroom.errors import DarkroomError
from darkroom.models.tokenizers.kl.network import KLAutoencoder, build, load_pretrained
from darkroom.models.tokenizers.kl.settings import Pretrained
from darkroom.models.tokenizers.protocol import load_tokenizer
from darkroom.models.tokenizers.settings import Params
from darkroom.stages import train_tokenizer
from helpers import DIGITS
from models.tokenizers.sections import kl

ROOT = Path(__file__).parents[3]
SHAPE = (3, 32, 32)


def published(folder, channels=3):
    """Write an autoencoder of two levels as its makers would: for another size than the images here."""
    torch.manual_seed(0)
    network = AutoencoderKL(
        in_channels=channels,
        out_channels=channels,
        down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2,
        block_out_channels=(8, 8),
        norm_num_groups=4,
        latent_channels=2,
        sample_size=256,
    )
    network.save_pretrained(folder)
    return network.eval()


def section(folder="data/none", **changes):
    values = {"name": None, "revision": None, "subfolder": None, "folder": str(folder), "downsampling": 2}
    return Pretrained(training={}, **values | {"image_channels": 3} | changes)


def test_it_encodes_and_decodes_as_its_makers_do(tmp_path):
    theirs, ours = published(tmp_path / "vae"), load_pretrained(section(tmp_path / "vae"), SHAPE)
    images = torch.randint(0, 256, (2, *SHAPE), dtype=torch.uint8)
    with torch.no_grad():
        expected = theirs.encode(images / 127.5 - 1).latent_dist
    mean, logvar = ours.encode(images)
    assert torch.equal(mean, expected.mean) and torch.equal(logvar, expected.logvar)
    assert ours.latent_shape == (2, 16, 16) == mean.shape[1:]


def test_one_of_darkroom_with_a_patch_is_read_again(tmp_path):
    network = build(kl(channels=[8], patch=2), 3, 32)
    network.save_pretrained(tmp_path / "vae")
    ours = load_pretrained(section(tmp_path / "vae"), SHAPE)
    images = torch.randint(0, 256, (2, *SHAPE), dtype=torch.uint8)
    assert torch.equal(ours.reconstruct(images), KLAutoencoder(network.eval()).reconstruct(images))


def test_of_a_whole_pipeline_its_folder_is_named(tmp_path):
    published(tmp_path / "pipeline" / "vae")
    assert load_pretrained(section(tmp_path / "pipeline", subfolder="vae"), SHAPE).latent_shape == (2, 16, 16)


def test_reading_it_draws_nothing(tmp_path):
    published(tmp_path)
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    load_pretrained(section(tmp_path), SHAPE)
    assert torch.equal(torch.rand(2), expected)


def test_what_does_not_fit_is_one_sentence(tmp_path):
    published(tmp_path / "vae")
    published(tmp_path / "grey", channels=1)
    faults = {
        "needs images of 1 channels, but these have 3": lambda: load_pretrained(section(tmp_path / "grey"), SHAPE),
        "is 2 x 2 pixels": lambda: load_pretrained(section(tmp_path / "vae", downsampling=8), SHAPE),
        "holds no config.json of a diffusers": lambda: load_pretrained(section(tmp_path / "nothing"), SHAPE),
    }
    for told, attempt in faults.items():
        with pytest.raises(DarkroomError) as fault:
            attempt()
        assert told in str(fault.value) and "\n" not in str(fault.value)


def test_weights_that_are_missing_damaged_or_a_pickle_are_one_sentence(tmp_path):
    published(tmp_path)
    weights = tmp_path / "diffusion_pytorch_model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(DarkroomError, match=r"the weights of .* cannot be read"):
        load_pretrained(section(tmp_path), SHAPE)
    weights.rename(tmp_path / "diffusion_pytorch_model.bin")
    with pytest.raises(
        DarkroomError, match=r"has no weights: put diffusion_pytorch_model\.safetensors beside config\.json"
    ):
        load_pretrained(section(tmp_path), SHAPE)


def test_another_model_is_refused(tmp_path):
    published(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "_class_name": "VQModel"}))
    with pytest.raises(DarkroomError, match="is a VQModel, but an AutoencoderKL is needed"):
        load_pretrained(section(tmp_path), SHAPE)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"name": "a/b", "folder": "x"}, "not both"),
        ({}, "set a name on the Hub or a folder"),
        ({"folder": "x", "revision": "main"}, "revision is only read with name"),
    ],
)
def test_a_section_that_contradicts_itself(changes, told):
    with pytest.raises(ValidationError, match=told):
        section(**changes)


def params(tmp_path, **changes):
    values = read_params(DIGITS)
    chosen = {**values["train_tokenizer"], "kind": "pretrained", **changes}
    chosen["pretrained"] = section(tmp_path / "vae").model_dump()
    return Params.model_validate({"run": {**values["run"], "device": "cpu"}, "train_tokenizer": chosen})


def test_the_stage_writes_it_without_an_update_and_tells_nothing_of_this_machine(clone, tmp_path, monkeypatch):
    published(tmp_path / "vae")
    selection = Selection({}, ImageSpec(size=32, channels="RGB", format="png"), "0" * 64)
    monkeypatch.setattr(train_tokenizer, "load_selection", lambda: selection)
    train_tokenizer.run(params(tmp_path))
    manifest = read_manifest(Path("models/tokenizer"), "tokenizer")
    assert (manifest["tokenizer_kind"], manifest["images_seen"], manifest["latent_shape"]) == (
        "pretrained",
        0,
        [2, 16, 16],
    )
    written = "".join(path.read_text() for path in Path("models/tokenizer").glob("*.json"))
    assert str(tmp_path) not in written and Path("curves/tokenizer").is_dir()
    loaded, _ = load_tokenizer(Path("models/tokenizer"), SHAPE)
    given = load_pretrained(section(tmp_path / "vae"), SHAPE)
    assert all(
        torch.equal(a, b) for a, b in zip(loaded.state_dict().values(), given.state_dict().values(), strict=True)
    )


def test_several_processes_would_all_import_it(tmp_path):
    common = read_params(DIGITS)["train_tokenizer"]["training"]
    with pytest.raises(ValidationError, match=r"set `train_tokenizer\.training\.processes` to 1"):
        params(tmp_path, training={**common, "processes": 2})


def test_by_name_it_comes_from_the_cache_of_the_hub(tmp_path, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    cached = tmp_path / "models--maker--vae"
    published(cached / "snapshots" / ("0" * 40))
    (cached / "refs").mkdir()
    (cached / "refs" / "main").write_text("0" * 40)
    assert load_pretrained(section(name="maker/vae"), SHAPE).latent_shape == (2, 16, 16)
    with pytest.raises(DarkroomError, match=r"the autoencoder maker/nothing, which .* names, cannot be read"):
        load_pretrained(section(name="maker/nothing"), SHAPE)
