"""An untrained tokenizer and a small generator, as their stages write them."""

import shutil
from pathlib import Path

import pytest
import torch

from darkroom.artifacts.manifest import file_hashes, write_manifest
from darkroom.data.images import ImageSpec
from darkroom.models.generators.dit.config import DiTConfig
from darkroom.models.generators.dit.network import DiT
from darkroom.models.tokenizers.kl.network import KLAutoencoder, build
from darkroom.models.tokenizers.protocol import load_tokenizer
from models.tokenizers.sections import kl


def enter(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make it the working folder, with dvc.yaml, one CPU thread and no GPU."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    shutil.copy(Path(__file__).parents[3] / "dvc.yaml", "dvc.yaml")


def write_models() -> None:
    """Write an untrained tokenizer, and a DiT whose weights moved for 16 updates."""
    torch.manual_seed(0)
    KLAutoencoder(build(kl(), 3, 16)).save_pretrained(Path("models/tokenizer"))
    files = file_hashes(Path("models/tokenizer"))
    write_manifest(Path("models/tokenizer"), "tokenizer", tokenizer_kind="kl", image_shape=[3, 16, 16], files=files)
    model = DiT(DiTConfig(2, 8, 10, 16, 1, 2, 2))
    for _ in range(16):
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.1 * torch.randn_like(parameter))
    model.save_pretrained(Path("models/generator"))
    raw = DiT(model.config)  # of another moment
    raw.load_state_dict({name: 0.5 * tensor for name, tensor in model.state_dict().items()})
    raw.save_pretrained(Path("models/generator/raw"))
    write_manifest(
        Path("models/generator"),
        "generator",
        generator_kind="dit",
        classes=list("0123456789"),
        class_counts=[0, 10, 20, 30, 40, 0, 0, 0, 0, 100],
        image=ImageSpec(16, "RGB", "png").metadata(),
        latent_shape=[2, 8, 8],
        latent_mean=[0.0, 0.0],
        latent_std=[1.0, 1.0],
        tokenizer=load_tokenizer(Path("models/tokenizer"))[1],
        files=file_hashes(Path("models/generator")),
    )
