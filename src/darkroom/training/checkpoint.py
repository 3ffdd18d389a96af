"""Checkpoints: a folder written beside, flushed, hashed, renamed; then, and only then, older ones are removed."""

import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from safetensors.torch import save as serialise
from torch import Tensor

from darkroom.artifacts.atomic import atomic_folder, write_bytes
from darkroom.artifacts.manifest import file_hashes, open_artifact, write_manifest
from darkroom.errors import DarkroomError

Tensors = dict[str, Tensor]
_KIND = "checkpoint"


def _folders(state: Path) -> list[Path]:
    return sorted(path for path in state.glob("images-*") if path.is_dir())


def save(state: Path, images: int, groups: dict[str, Tensors], facts: dict[str, Any], keep: int) -> Path:
    """Write the checkpoint of `images` images seen, and keep the newest `keep`.

    Args:
        state: the training's state folder.
        images: images seen.
        groups: tensors by name, one safetensors file a group.
        facts: JSON values; floats return bit for bit.
        keep: how many checkpoints to keep, at least 2: the newest may turn out damaged.
    """
    folder = state / f"images-{images:012d}"
    with atomic_folder(folder) as temporary:
        for name, tensors in groups.items():
            # In one piece: safetensors' own writer hides a full disk behind an error of its own.
            data = serialise({key: value.contiguous() for key, value in tensors.items()})
            write_bytes(temporary / f"{name}.safetensors", data)
        write_manifest(temporary, _KIND, images=images, files=file_hashes(temporary), facts=facts)
    for old in _folders(state)[: -max(2, keep)]:
        shutil.rmtree(old)
    return folder


def _read(folder: Path) -> tuple[int, dict[str, Tensors], dict[str, Any]]:
    manifest = open_artifact(folder, _KIND)
    groups = {Path(name).stem: load_file(folder / name) for name in manifest["files"]}
    return manifest["images"], groups, manifest["facts"]


def load_newest(state: Path) -> tuple[int, dict[str, Tensors], dict[str, Any]] | None:
    """Return (images, groups, facts) of the newest checkpoint that is whole, or None where there is none.

    Temporary folders of a killed writer are swept. A damaged checkpoint is set aside with a message, and the one
    before it is taken.
    """
    for stump in state.glob(".images-*.tmp-*"):
        shutil.rmtree(stump)
    for folder in reversed(_folders(state)):
        try:
            return _read(folder)
        except DarkroomError as error:
            aside = folder.with_name(f"damaged-{folder.name}")
            shutil.rmtree(aside, ignore_errors=True)
            folder.rename(aside)
            print(f"checkpoint {folder.name} is damaged and set aside as {aside}: {error}")
    return None


def optimizer_tensors(optimizer: torch.optim.Optimizer, names: dict[Tensor, str]) -> Tensors:
    """Return an optimizer's state as tensors under `PARAMETER/KEY`: by name, never by order."""
    return {
        f"{names[parameter]}/{key}": torch.as_tensor(value)
        for parameter, state in optimizer.state.items()
        for key, value in state.items()
    }


def load_optimizer(optimizer: torch.optim.Optimizer, names: dict[Tensor, str], tensors: Tensors) -> None:
    """Give an optimizer the state that `optimizer_tensors` returned."""
    parameters = {name: parameter for parameter, name in names.items()}
    for path, value in tensors.items():
        name, _, key = path.rpartition("/")
        # The fused kernels read `step` on the device, too.
        optimizer.state[parameters[name]][key] = value.to(parameters[name].device)
