"""Files of published DiT weights: the paper's `.pt`, and folders of diffusers. What they hold, and whether it fits."""

import argparse
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import Tensor

from darkroom.errors import DarkroomError
from darkroom.models.generators.dit.config import DiTConfig
from darkroom.models.generators.dit.published import (
    is_diffusers,
    is_paper,
    ours_from_diffusers,
    ours_from_published,
    unwrapped,
)
from darkroom.models.generators.dit.settings import SIZES
from darkroom.training.weight_files import PICKLES, pickle_in, read_pickled, read_weights, weights_in

SUBFOLDER = "transformer"  # of a diffusers pipeline
_CLASSES = ("DiTTransformer2DModel", "Transformer2DModel")  # the second is the older name
_MODEL = "`train_generator.dit.model.{}`"
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


@dataclass(frozen=True)
class Published:
    """Published weights.

    tensors: by our names; `positions` is missing where the file has no table.
    heads: of attention, where the file says how many; tensors do not show it.
    """

    tensors: dict[str, Tensor]
    heads: int | None = None


@dataclass(frozen=True)
class Shape:
    """What tensors show of a DiT; None where a tensor is missing.

    outputs: channels of the output for each channel of the input: 2 with a learned variance.
    side: tokens in a row.
    hidden: width of a block's hidden layer.
    """

    width: int | None = None
    depth: int | None = None
    patch: int | None = None
    channels: int | None = None
    outputs: int | None = None
    classes: int | None = None
    side: int | None = None
    hidden: int | None = None

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor]) -> "Shape":
        """Return what tensors by our names show."""
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
        return cls(**found)


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
    try:
        found = ours_from_paper_or_diffusers(tensors)
    except DarkroomError as error:
        raise DarkroomError(f"{path}: {error}") from error
    if found is None:
        raise DarkroomError(
            f"{path} holds no DiT: none of its {len(tensors)} tensors is called x_embedder.proj.weight, as in the "
            "paper's code, or pos_embed.proj.weight, as in diffusers; name the right file."
        )
    if config and "positions" not in found and isinstance(config.get("sample_size"), int):
        # diffusers saves no table: the one that belongs to the size says for which latents the weights are.
        from darkroom.models.generators.dit.embeddings import sincos_positions

        width, _, patch, _ = found["patches.weight"].shape
        found["positions"] = sincos_positions(width, config["sample_size"] // patch)
    return Published(found, heads)


def ours_from_paper_or_diffusers(tensors: Mapping[str, Tensor]) -> dict[str, Tensor] | None:
    """Return published tensors by our names; None: they are those of no published DiT."""
    tensors = unwrapped(tensors)
    if is_paper(tensors):
        return ours_from_published(tensors)
    return ours_from_diffusers(tensors) if is_diffusers(tensors) else None


def _foreign_names(path: Path) -> bool:
    """Return whether a safetensors file has the names of the paper's code or of diffusers' DiT."""
    if path.suffix != ".safetensors":
        return False
    try:
        with safe_open(path, framework="pt") as file:
            names: Any = dict.fromkeys(file.keys())
    except SafetensorError:
        return False  # the general reader says what is wrong with it
    names = unwrapped(names)
    return is_paper(names) or is_diffusers(names)


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
    found, wrong, remedies = Shape.of(tensors), [], []
    for name, theirs, ours in (
        ("depth", found.depth, config.depth),
        ("width", found.width, config.width),
        ("patch", found.patch, config.patch),
    ):
        if theirs is not None and theirs != ours:
            wrong.append((f"{name} {theirs:,}", f"{ours:,}"))
            remedies.append(f"set {_MODEL.format(name)} to {theirs}")
    named = [name for name, (depth, width, _) in SIZES.items() if (found.depth, found.width) == (depth, width)]
    if named and (found.depth, found.width) != (config.depth, config.width):
        patch = [remedy for remedy in remedies if "patch" in remedy]
        remedies = [f"set {_MODEL.format('size')} to {named[0]} and leave width, depth and heads empty", *patch]
    if not wrong and found.hidden is not None and found.hidden != round(config.width * config.mlp_ratio):
        wrong.append((f"hidden layers of {found.hidden:,}", f"{round(config.width * config.mlp_ratio):,}"))
        remedies.append(f"set {_MODEL.format('mlp_ratio')} to {found.hidden / config.width!r}")
    if found.channels is not None and found.channels != config.channels:
        wrong.append((f"latents of {found.channels} channels", str(config.channels)))
        remedies.append("take the tokenizer that they were trained with (`train_tokenizer.kind`: pretrained)")
    if found.outputs is not None and found.outputs != 1 + config.learned_variance:
        learned = found.outputs == 2
        wrong.append(("a learned variance" if learned else "no learned variance", "none" if learned else "one"))
        keys = "`train_generator.dit.diffusion`: `objective` to gaussian and `variance` to "
        otherwise = "; or, if it is a SiT, `time_units` to sit" if learned else ""
        remedies.append(f"set of {keys}{'learned_range' if learned else 'fixed_small'}{otherwise}")
    size = (found.side or 0) * config.patch
    if found.side is not None and found.patch == config.patch and size != config.size:
        wrong.append((f"latents of {size} x {size}", f"{config.size} x {config.size}"))
        remedies.append(
            f"change `ingest.image_size` by the factor {size / config.size:g}, or put "
            '"dit/positions" under `train_generator.training.init.skip`'
        )
    if found.classes is not None and found.classes != config.classes:
        wrong.append((f"{found.classes:,} classes", f"{config.classes:,} (data/catalog)"))
        remedies.append(
            'put "dit/labels.weight" under `train_generator.training.init.skip`, so that its table begins at random'
        )
    if not wrong:
        return None
    has = ", ".join(f"{theirs}, and params.yaml makes it {ours}" for theirs, ours in wrong)
    return f"has {has}: {'; '.join(remedies)}."
