"""Read and check files of published DiT weights: the paper's `.pt`, and folders of diffusers."""

import argparse
import json
import re
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from safetensors import SafetensorError, safe_open
from torch import Tensor

from darkroom.errors import DarkroomError
from darkroom.models.generators.dit.config import DiTConfig
from darkroom.models.generators.dit.published import to_ours, unwrapped
from darkroom.models.generators.dit.settings import SIZES
from darkroom.training.weight_files import PICKLES, pickle_in, read_pickled, read_weights, weights_in

SUBFOLDER = "transformer"  # of a diffusers pipeline
_CLASSES = ("DiTTransformer2DModel", "Transformer2DModel")  # the second is the older name
# Options that the published formats do not support, and their disabled values.
SWITCHES = {
    "norm": "layer",
    "mlp": "gelu",
    "rope": False,
    "qk_norm": False,
    "patch_bottleneck": None,
    "condition": "class",
}


class Published(NamedTuple):
    """Published weights.

    tensors: by our names; `positions` is missing where the file has no table.
    heads: the number of attention heads, if the file states it; tensors do not show it.
    """

    tensors: dict[str, Tensor]
    heads: int | None = None


def read_published(path: Path) -> Published | None:
    """Return the weights of a `.pt` file or a diffusers folder, on the CPU; None: it is neither, or has our names.

    Args:
        path: a file; a folder with `config.json` and weights as diffusers writes them, there or in `transformer/`; or
            a folder with one `.pt`.

    Raises:
        DarkroomError: a pickle that needs code, a truncated file, or a file without a DiT.
    """
    if path.is_dir():
        for folder in (path / SUBFOLDER, path):
            if (config := _config(folder)) is not None:
                return _read_file(_weights(folder), config)
        checkpoint = pickle_in(path)
        return _read_file(checkpoint) if checkpoint else None
    return _read_file(path) if path.is_file() else None


def _config(folder: Path) -> dict[str, Any] | None:
    """Return the configuration of diffusers' DiT in a folder, or None."""
    path = folder / "config.json"
    try:
        config = json.loads(path.read_text()) if path.is_file() else {}
    except ValueError as error:
        raise DarkroomError(f"{path} is not JSON ({error}): download it again.") from error
    if not isinstance(config, dict) or config.get("_class_name") not in _CLASSES:
        return None
    if config.get("norm_type") != "ada_norm_zero":
        raise DarkroomError(f"{path} describes no DiT: `norm_type` is {config.get('norm_type')!r}, not ada_norm_zero.")
    return config


def _weights(folder: Path) -> Path:
    pickled = folder / "diffusion_pytorch_model.bin"
    if not any(folder.glob("*.safetensors*")) and pickled.is_file():
        return pickled
    if (weights := weights_in(folder)) is None:
        raise DarkroomError(f"{folder} has no diffusion_pytorch_model.safetensors: download the weights.")
    return weights


def _read_file(path: Path, config: Mapping[str, Any] | None = None) -> Published | None:
    """Return the weights of a file; None: it is safetensors with other names."""
    heads = config.get("num_attention_heads") if config else None
    if path.suffix.lower() in PICKLES:
        tensors, named = _unpickled(path)
        heads = heads or named
    else:
        if config is None and not _foreign_names(path):
            return None
        tensors = read_weights(path)
    tensors = unwrapped(tensors)
    if (convert := to_ours(tensors)) is None:
        raise DarkroomError(
            f"{path} holds no DiT: none of its {len(tensors)} tensors is named x_embedder.proj.weight, as in the "
            "paper's code, or pos_embed.proj.weight, as in diffusers. Use a file with a DiT."
        )
    try:
        converted = convert(tensors)
    except DarkroomError as error:
        raise DarkroomError(f"{path}: {error}") from error
    if config and "positions" not in converted and isinstance(config.get("sample_size"), int):
        # diffusers saves no table: the table of the configured size shows the latents' size.
        from darkroom.models.generators.embeddings import sincos_positions

        width, _, patch, _ = converted["patches.weight"].shape
        converted["positions"] = sincos_positions(width, config["sample_size"] // patch)
    return Published(converted, heads)


def _foreign_names(path: Path) -> bool:
    """Return whether a safetensors file has the names of the paper's code or of diffusers' DiT."""
    if path.suffix != ".safetensors":
        return False
    try:
        with safe_open(path, framework="pt") as file:
            names: Any = dict.fromkeys(file.keys())
    except SafetensorError:
        return False  # the general reader reports the error
    return to_ours(unwrapped(names)) is not None


def _unpickled(path: Path) -> tuple[dict[str, Tensor], int | None]:
    """Return the tensors of a checkpoint, of the averaged weights if it has them, and its heads if it states them.

    A checkpoint is a state dict, or `{"model", "ema", "opt", "args"}` with `args` an `argparse.Namespace`, as the
    paper's training writes it.
    """
    content = read_pickled(path, argparse.Namespace)
    whole: dict[Any, Any] = content if isinstance(content, dict) else {}
    inner = (whole[name] for name in ("ema", "model", "state_dict") if isinstance(whole.get(name), dict))
    tensors = {
        name: value for name, value in next(inner, whole).items() if isinstance(name, str) and isinstance(value, Tensor)
    }
    return tensors, _heads_of(whole.get("args"))


def _heads_of(arguments: Any) -> int | None:
    """Return the heads of the size that the arguments of the paper's training name, such as `DiT-XL/2`."""
    name = getattr(arguments, "model", None)
    match = re.match(r"\w+-(S|B|L|XL)/\d+$", name) if isinstance(name, str) else None
    return SIZES[match[1]][2] if match else None


def switch_of(config: DiTConfig) -> tuple[str, Any] | None:
    """Return the first enabled option of a network that published formats do not support, with its value, or None."""
    values = asdict(config)
    return next(((name, values[name]) for name, plain in SWITCHES.items() if values[name] != plain), None)
