"""The stage `sample_generator`: which weights it takes."""

import json
from pathlib import Path

import pytest
import torch

from darkroom.artifacts.manifest import file_hashes, write_manifest
from darkroom.check.check import read_params
from darkroom.data.images import ImageSpec
from darkroom.errors import DarkroomError
from darkroom.models.generators.dit.network import DiT, DiTConfig
from darkroom.models.generators.sample_settings import Params
from darkroom.models.tokenizers.kl.network import KLAutoencoder, build
from darkroom.models.tokenizers.load import load_tokenizer
from darkroom.stages import sample_generator
from darkroom.training.averages import (
    Average,
    export_snapshots,
    power_decay,
    reconstruct,
    snapshot_due,
    write_snapshot,
)
from helpers import training
from models.tokenizers.sections import kl

VALUES = read_params(Path(__file__).parents[2] / "params.yaml")
TINY = {"threads": 1, "images": 4, "batch": 4, "shard_size": 4}


def write_models(profiles: bool) -> None:
    """Write an untrained tokenizer, and a DiT whose weights moved for 16 updates, with averages kept beside or not."""
    torch.manual_seed(0)
    KLAutoencoder(build(kl(), 3, 16)).save_pretrained(Path("models/tokenizer"))
    files = file_hashes(Path("models/tokenizer"))
    write_manifest(Path("models/tokenizer"), "tokenizer", tokenizer_kind="kl", image_shape=[3, 16, 16], files=files)
    model, settings = DiT(DiTConfig(2, 8, 10, 16, 1, 2, 2)), training(images=64, batch=4, ema_profiles=[0.05, 0.1])
    averages = {width: Average({"dit": model}, power_decay(width)) for width in settings.ema_profiles}
    for update in range(16):
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.1 * torch.randn_like(parameter))
        for average in averages.values():
            average.update(update)
        if snapshot_due(update * 4, update * 4 + 4, settings):
            write_snapshot(Path("state"), update * 4 + 4, {"dit": model}, averages)
    model.save_pretrained(Path("models/generator"))
    if profiles:
        export_snapshots(Path("state"), "dit", Path("models/generator/profiles"), settings)
    write_manifest(
        Path("models/generator"),
        "generator",
        generator_kind="dit",
        classes=list("0123456789"),
        image=ImageSpec(16, "RGB", "png").metadata(),
        latent_mean=[0.0, 0.0],
        latent_std=[1.0, 1.0],
        tokenizer=load_tokenizer(Path("models/tokenizer"))[1],
        files=file_hashes(Path("models/generator")),
    )


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_models(profiles=True)
    return tmp_path / "models/generator"


def test_a_generator_of_another_kind_than_params_yaml_chooses_is_refused(model: Path) -> None:
    manifest = json.loads((model / "manifest.json").read_text())
    facts = {name: value for name, value in manifest.items() if name not in ("kind", "format", "seal")}
    write_manifest(model, "generator", **(facts | {"generator_kind": "masked"}))
    with pytest.raises(DarkroomError, match=r"of the kind `masked`, and params\.yaml chooses another"):
        shards()


def shards(**changes: object) -> bytes:
    """Run the stage and return its images."""
    values = {key: VALUES[key] for key in ("run", "sample_generator")}
    common, dit = (
        {**values["sample_generator"][name], **own} for name, own in (("common", TINY | changes), ("dit", {"steps": 2}))
    )
    values["sample_generator"] = {"common": common, "dit": dit}
    values["run"] = {**values["run"], "device": "cpu"}
    sample_generator.run(Params.model_validate(values))
    assert json.loads(Path("samples/generator/manifest.json").read_text())["sampler"]["sigma_rel"] == changes.get(
        "sigma_rel"
    )
    return Path("samples/generator/00000.tar").read_bytes()


def test_a_width_takes_the_rebuilt_weights(model: Path) -> None:
    """The same images as from a model that holds these weights as its own."""
    own, rebuilt = shards(), shards(sigma_rel=0.07)
    assert own != rebuilt != shards(sigma_rel=0.1)
    other = DiT.from_pretrained(model)
    other.load_state_dict(reconstruct(model / "profiles", 0.07))
    other.save_pretrained(model)
    manifest = json.loads((model / "manifest.json").read_text())
    (model / "manifest.json").write_text(json.dumps({**manifest, "files": file_hashes(model)}))
    assert shards() == rebuilt


def test_a_width_without_kept_averages_names_the_parameter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_models(profiles=False)
    assert not Path("models/generator/profiles").exists() and shards()
    with pytest.raises(DarkroomError, match="ema_profiles"):
        shards(sigma_rel=0.1)
