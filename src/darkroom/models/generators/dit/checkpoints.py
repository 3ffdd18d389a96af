"""Files of published DiT weights: the paper's `.pt`, and folders of diffusers. What they hold, and whether it fits."""

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
_MODEL, _SKIP = "`train_generator.dit.model.{}`", "`train_generator.training.init.skip`"
# What the published format has no place for, and the value without it.
SWITCHES = {
    "norm": "layer",
    "mlp": "gelu",
    "rope": False,
    "qk_norm": False,
    "value_residual": False,
    "shared_adaln": False,
    "patch_bottleneck": None,
    "condition": "class",
}


class Published(NamedTuple):
    """Published weights.

    tensors: by our names; `positions` is missing where the file has no table.
    heads: of attention, where the file says how many; tensors do not show it.
    """

    tensors: dict[str, Tensor]
    heads: int | None = None


SHAPE = ("width", "depth", "patch", "channels", "outputs", "classes", "hidden")


def shape_of(tensors: Mapping[str, Tensor]) -> dict[str, int]:
    """Return what tensors by our names show of a DiT: `SHAPE` and `side`, but for those whose tensors are missing.

    Width, depth, patch, channels and classes of its `DiTConfig`; outputs: channels of the output for each of the input,
    2 with a learned variance; hidden: width of a block's hidden layer; side: tokens in a row.
    """
    found: dict[str, int] = {}
    if (patches := tensors.get("patches.weight")) is not None and patches.ndim == 4:
        found |= {"width": patches.shape[0], "channels": patches.shape[1], "patch": patches.shape[2]}
        if (head := tensors.get("head.linear.bias")) is not None:
            found["outputs"] = len(head) // (found["channels"] * found["patch"] ** 2)
    if numbers := {int(name.split(".")[1]) for name in tensors if re.match(r"blocks\.\d+\.", name)}:
        found["depth"] = len(numbers)
    if (labels := tensors.get("labels.weight")) is not None:
        found["classes"] = len(labels) - 1
    if (positions := tensors.get("positions")) is not None:
        found["side"] = round(len(positions) ** 0.5)
    if (hidden := tensors.get("blocks.0.mlp.0.bias")) is not None:
        found["hidden"] = len(hidden)
    return found


def read_published(path: Path) -> Published | None:
    """Return the weights of a `.pt` file or a diffusers folder, on the CPU; None: it is neither, or has our names.

    Args:
        path: a file; a folder with `config.json` and weights as diffusers writes them, there or in `transformer/`; or
            a folder with one `.pt`.

    Raises:
        DarkroomError: a pickle that asks for code, a file that is cut short, or one that holds no DiT.
    """
    if path.is_dir():
        for folder in (path / SUBFOLDER, path):
            if (config := _config(folder)) is not None:
                return _read_file(_weights(folder), config)
        checkpoint = pickle_in(path)
        return _read_file(checkpoint) if checkpoint else None
    return _read_file(path) if path.is_file() else None


def _config(folder: Path) -> dict[str, Any] | None:
    """Return the configuration of diffusers' DiT in a folder; None: there is none."""
    path = folder / "config.json"
    try:
        found = json.loads(path.read_text()) if path.is_file() else {}
    except ValueError as error:
        raise DarkroomError(f"{path} is no JSON ({error}): fetch it again.") from error
    if not isinstance(found, dict) or found.get("_class_name") not in _CLASSES:
        return None
    if found.get("norm_type") != "ada_norm_zero":
        raise DarkroomError(f"{path} describes no DiT: `norm_type` is {found.get('norm_type')!r}, not ada_norm_zero.")
    return found


def _weights(folder: Path) -> Path:
    pickled = folder / "diffusion_pytorch_model.bin"
    if not any(folder.glob("*.safetensors*")) and pickled.is_file():
        return pickled
    if (found := weights_in(folder)) is None:
        raise DarkroomError(f"{folder} has no diffusion_pytorch_model.safetensors: fetch the weights.")
    return found


def _read_file(path: Path, config: Mapping[str, Any] | None = None) -> Published | None:
    """Return what a file holds; None: it is safetensors with other names."""
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
            f"{path} holds no DiT: none of its {len(tensors)} tensors is called x_embedder.proj.weight, as in the "
            "paper's code, or pos_embed.proj.weight, as in diffusers; name the right file."
        )
    try:
        found = convert(tensors)
    except DarkroomError as error:
        raise DarkroomError(f"{path}: {error}") from error
    if config and "positions" not in found and isinstance(config.get("sample_size"), int):
        # diffusers saves no table: the one that belongs to the size says for which latents the weights are.
        from darkroom.models.generators.dit.embeddings import sincos_positions

        width, _, patch, _ = found["patches.weight"].shape
        found["positions"] = sincos_positions(width, config["sample_size"] // patch)
    return Published(found, heads)


def _foreign_names(path: Path) -> bool:
    """Return whether a safetensors file has the names of the paper's code or of diffusers' DiT."""
    if path.suffix != ".safetensors":
        return False
    try:
        with safe_open(path, framework="pt") as file:
            names: Any = dict.fromkeys(file.keys())
    except SafetensorError:
        return False  # the general reader says what is wrong with it
    return to_ours(unwrapped(names)) is not None


def _unpickled(path: Path) -> tuple[dict[str, Tensor], int | None]:
    """Return the tensors of a checkpoint, those of the averaged weights where it has them, and its heads if it says so.

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
    found = re.match(r"\w+-(S|B|L|XL)/\d+$", name) if isinstance(name, str) else None
    return SIZES[found[1]][2] if found else None


def switch_of(config: DiTConfig) -> tuple[str, Any] | None:
    """Return the first switch of a network that the published formats cannot hold, with its value; None: none is on."""
    values = asdict(config)
    return next(((name, values[name]) for name, plain in SWITCHES.items() if values[name] != plain), None)


def misfit(tensors: Mapping[str, Tensor], config: DiTConfig) -> str | None:
    """Return in one sentence what published weights have, what params.yaml says, and what to change; None: they fit.

    Args:
        tensors: by our names, without those that are to begin at random.
        config: of the network that they are for.
    """
    found = shape_of(tensors)
    rows: list[tuple[str, str, str]] = []  # what they have, what params.yaml says, the remedy
    shape = found.get("depth"), found.get("width")
    named = [name for name, (depth, width, _) in SIZES.items() if shape == (depth, width)]
    for name in ("depth", "width", "patch"):
        theirs, ours = found.get(name), getattr(config, name)
        if theirs not in (None, ours):
            remedy = f"set {_MODEL.format(name)} to {theirs}"
            if named and name != "patch":
                remedy = f"set {_MODEL.format('size')} to {named[0]} and leave width, depth and heads empty"
            rows.append((f"{name} {theirs:,}", f"{ours:,}", remedy))
    hidden = round(config.width * config.mlp_ratio)
    if not rows and found.get("hidden", hidden) != hidden:
        remedy = f"set {_MODEL.format('mlp_ratio')} to {found['hidden'] / config.width!r}"
        rows.append((f"hidden layers of {found['hidden']:,}", f"{hidden:,}", remedy))
    if found.get("channels", config.channels) != config.channels:
        remedy = "take the tokenizer that they were trained with (`train_tokenizer.kind`: pretrained)"
        rows.append((f"latents of {found['channels']} channels", str(config.channels), remedy))
    if found.get("outputs", 1 + config.learned_variance) != 1 + config.learned_variance:
        learned = found["outputs"] == 2
        variance, sit = (
            ("learned_range", "; or, if it is a SiT, `time_units` to sit") if learned else ("fixed_small", "")
        )
        remedy = f"set of `train_generator.dit.diffusion`: `objective` to gaussian and `variance` to {variance}{sit}"
        rows.append(("a learned variance", "none", remedy) if learned else ("no learned variance", "one", remedy))
    size = found.get("side", 0) * config.patch
    if "side" in found and found.get("patch") == config.patch and size != config.size:
        remedy = (
            f'change `ingest.image_size` by the factor {size / config.size:g}, or put "dit/positions" under {_SKIP}'
        )
        rows.append((f"latents of {size} x {size}", f"{config.size} x {config.size}", remedy))
    if found.get("classes", config.classes) != config.classes:
        remedy = f'put "dit/labels.weight" under {_SKIP}, so that its table begins at random'
        rows.append((f"{found['classes']:,} classes", f"{config.classes:,} (data/catalog)", remedy))
    if not rows:
        return None
    has = ", ".join(f"{theirs}, and params.yaml makes it {ours}" for theirs, ours, _ in rows)
    return f"has {has}: {'; '.join(dict.fromkeys(remedy for _, _, remedy in rows))}."
