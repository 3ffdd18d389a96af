"""Published DiT weights in small, in the formats of the paper's code and of diffusers."""

import argparse
import json
import os
import shutil
import zipfile
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from darkroom.artifacts.manifest import file_hashes, write_manifest
from darkroom.check.check import read_params
from darkroom.data.catalog import load_catalog
from darkroom.data.catalog_writer import write_catalog
from darkroom.data.images import ImageSpec
from darkroom.models.generators.dit.config import DiTConfig
from darkroom.models.generators.dit.network import DiT
from darkroom.models.generators.dit.published import to_diffusers, to_published
from darkroom.models.generators.sample_settings import Params as SampleParams
from darkroom.models.generators.settings import Params
from darkroom.models.tokenizers.kl.network import KLAutoencoder, build
from darkroom.models.tokenizers.settings import EncodeParams
from darkroom.stages import encode_latents, sample_generator, train_generator
from data.making import make_part
from helpers import DIGITS
from models.tokenizers.sections import kl

ROOT = Path(__file__).parents[3]
VALUES = read_params(DIGITS)
SIZE, CHANNELS, WIDTH, DEPTH, HEADS, PATCH = 4, 2, 16, 2, 2, 2  # of latents of 8 x 8 images, and of the DiT


def small(classes: int, learned: bool = True, **changes: Any) -> DiT:
    """Return a DiT all of whose weights are random: as built, its gates are zero and hide the blocks."""
    torch.manual_seed(0)
    shape = {"width": WIDTH, "depth": DEPTH, "heads": HEADS, "patch": PATCH, "learned_variance": learned}
    model = DiT(DiTConfig(CHANNELS, SIZE, classes, **{**shape, **changes})).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    return model


def reference(
    tensors: dict[str, Tensor], x: Tensor, t: Tensor, labels: Tensor, heads: int = 2, patch: int = 2
) -> Tensor:
    """Return what the paper says of tensors of these names: float64, plain sums, no line of anybody's code."""
    w = {name: value.double().numpy() for name, value in tensors.items()}

    def linear(name: str, value: Any) -> Any:
        return value @ w[f"{name}.weight"].T + w[f"{name}.bias"]

    def silu(value: Any) -> Any:
        return value / (1 + np.exp(-value))

    def norm(value: Any) -> Any:
        return (value - value.mean(-1, keepdims=True)) / np.sqrt(value.var(-1, keepdims=True) + 1e-6)

    def gelu(value: Any) -> Any:
        return 0.5 * value * (1 + np.tanh(np.sqrt(2 / np.pi) * (value + 0.044715 * value**3)))

    x, side = x.double().numpy(), x.shape[-1] // patch
    angles = t.double().numpy()[:, None] * 10_000 ** -(np.arange(128) / 128)
    time = linear(
        "t_embedder.mlp.2", silu(linear("t_embedder.mlp.0", np.concatenate([np.cos(angles), np.sin(angles)], 1)))
    )
    c = silu(time + w["y_embedder.embedding_table.weight"][labels])
    patches = x.reshape(len(x), -1, side, patch, side, patch).transpose(0, 2, 4, 1, 3, 5).reshape(len(x), side**2, -1)
    kernel = w["x_embedder.proj.weight"]
    z = patches @ kernel.reshape(len(kernel), -1).T + w["x_embedder.proj.bias"] + w["pos_embed"]
    for block in sorted({name.split(".")[1] for name in w if name.startswith("blocks.")}):
        at = f"blocks.{block}"
        parts = np.split(linear(f"{at}.adaLN_modulation.1", c)[:, None], 6, axis=-1)
        qkv = linear(f"{at}.attn.qkv", norm(z) * (1 + parts[1]) + parts[0])
        q, k, v = qkv.reshape(*z.shape[:2], 3, heads, -1).transpose(2, 0, 3, 1, 4)
        scores = np.exp(q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]))
        mixed = (scores / scores.sum(-1, keepdims=True) @ v).transpose(0, 2, 1, 3).reshape(z.shape)
        z = z + parts[2] * linear(f"{at}.attn.proj", mixed)
        hidden = gelu(linear(f"{at}.mlp.fc1", norm(z) * (1 + parts[4]) + parts[3]))
        z = z + parts[5] * linear(f"{at}.mlp.fc2", hidden)
    shift, scale = np.split(linear("final_layer.adaLN_modulation.1", c)[:, None], 2, axis=-1)
    out = linear("final_layer.linear", norm(z) * (1 + scale) + shift)
    grid = out.reshape(len(x), side, side, patch, patch, -1).transpose(0, 5, 1, 3, 2, 4)
    return torch.from_numpy(grid.reshape(len(x), -1, side * patch, side * patch))


def write_pt(path: Path, model: DiT, **more: Any) -> Path:
    """Write a bare state dict, or with more a whole checkpoint whose `model` is another one than `ema`."""
    tensors = to_published(model.state_dict())
    if more:
        other = {name: value + 1 for name, value in tensors.items()}
        tensors = {"model": other, "ema": tensors, "opt": {"state": {}, "param_groups": [{"lr": 1e-4}]}, **more}  # type: ignore[dict-item]
    torch.save(tensors, path)
    return path


def arguments(model: str) -> argparse.Namespace:
    """Return the arguments of the paper's training."""
    return argparse.Namespace(model=model, image_size=256, num_classes=1000, results_dir="results", ckpt_every=50_000)


def write_diffusers(folder: Path, model: DiT, **changes: Tensor) -> Path:
    """Write a folder as diffusers has it, some tensors changed."""
    folder.mkdir(parents=True)
    config = model.config
    values = {
        "_class_name": "DiTTransformer2DModel",
        "num_attention_heads": config.heads,
        "attention_head_dim": config.width // config.heads,
        "in_channels": config.channels,
        "out_channels": config.channels * (1 + config.learned_variance),
        "num_layers": config.depth,
        "sample_size": config.size,
        "patch_size": config.patch,
        "num_embeds_ada_norm": config.classes,
        "norm_type": "ada_norm_zero",
        "attention_bias": True,
        "activation_fn": "gelu-approximate",
    }
    (folder / "config.json").write_text(json.dumps(values))
    save_file({**to_diffusers(model.state_dict()), **changes}, folder / "diffusion_pytorch_model.safetensors")
    return folder


class Payload:
    """Makes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.system, (f"touch {self.path}",)


def shorten(path: Path) -> Path:
    """Cut the end of a file off."""
    assert zipfile.is_zipfile(path)
    path.write_bytes(path.read_bytes()[:-2000])
    return path


def write_clone() -> list[str]:
    """Write shards, a catalog, a KL tokenizer and its latents into the current folder; return the classes."""
    shutil.copytree(_clone().name, ".", dirs_exist_ok=True)
    return list(load_catalog(shards=None).classes)


@cache
def _clone() -> TemporaryDirectory[str]:
    """Return a folder with them, made once a process."""
    folder = TemporaryDirectory()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder.name)
        patch.setenv("DVC_ROOT", folder.name)
        _write()
    return folder


def _write() -> None:
    for file in (DIGITS, ROOT / "dvc.yaml"):
        shutil.copy(file, file.name)
    make_part(Path("data/shards"), "one", 0, 40, spec=ImageSpec(8, "RGB", "png"), default_label="none")
    Path("data/catalog").mkdir()
    write_catalog(Path("data/catalog"), ["one"])
    torch.manual_seed(0)
    folder = Path("models/tokenizer")
    KLAutoencoder(build(kl(), 3, 8)).save_pretrained(folder)
    shape = {"image_shape": [3, 8, 8], "latent_shape": [CHANNELS, SIZE, SIZE]}
    write_manifest(folder, "tokenizer", tokenizer_kind="kl", **shape, files=file_hashes(folder))
    values = {"run": RUN, "encode_latents": {**VALUES["encode_latents"], "batch": 20}}
    encode_latents.run(EncodeParams.model_validate(values), "one")


RUN = {**VALUES["run"], "device": "cpu", "grid_every": 0, "workers": 0}
MODEL = {"width": WIDTH, "depth": DEPTH, "heads": HEADS, "patch": PATCH}
PUBLISHED = {"objective": "gaussian", "schedule": "linear", "target": "eps", "variance": "learned_range"}
FIXED = {**PUBLISHED, "bound_weight": 1.0, "normalise": "fixed", "latent_scale": 0.5}
DDIM = {"solver": "ddim", "steps": 2, "guidance": 1.5}


def trained(kind: str, init: str = "data/none", **section: Any) -> dict[str, Any]:
    """Run the stage for two updates, or of published weights, and return the manifest."""
    values = {**VALUES["train_generator"], "kind": kind, kind: section}
    own = {"images": 16, "batch": 8, "warmup": 0, "threads": 1, "log_every": 8, "validate_every": 16, "ema_decay": 0.0}
    own |= {"learning_rate": 0.001, "init": {"folder": init}}
    values["training"] = {**VALUES["training"], **own}
    train_generator.run(Params.model_validate({"run": RUN, "train_generator": values}))
    return json.loads(Path("models/generator/manifest.json").read_text())


def sampled(kind: str, images: int = 4, **changes: Any) -> bytes:
    """Run the stage and return its first images."""
    common = {**VALUES["sample_generator"]["common"], "threads": 1, "images": images, "batch": 4, "shard_size": 4}
    values = {"run": RUN, "sample_generator": {"common": common, kind: {**DDIM, **changes}}}
    sample_generator.run(SampleParams.model_validate(values))
    return Path("samples/generator/00000.tar").read_bytes()
