"""Checkpoints: folders of tensors by group and name, and of JSON values. What they hold: `TrainState.state_dict`.

A checkpoint is written to a temporary folder, flushed, hashed and renamed; then, and only then, older ones are removed.
"""

import hashlib
import json
import os
import shutil
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from darkroom.artifacts.atomic import atomic_folder
from darkroom.artifacts.manifest import check_seal, open_artifact, write_manifest
from darkroom.errors import DarkroomError
from darkroom.training.processes import put

Tensors = dict[str, Tensor]
KIND = "checkpoint"

_DTYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}


def under(name: str, tensors: Tensors) -> Tensors:
    """Return the tensors under `NAME/`, without that prefix."""
    return {key.removeprefix(f"{name}/"): value for key, value in tensors.items() if key.startswith(f"{name}/")}


def fill(targets: Mapping[str, Tensor], values: Mapping[str, Tensor]) -> None:
    """Copy the tensors of a checkpoint into others of the same names.

    Raises:
        DarkroomError: the names differ.
    """
    if targets.keys() != values.keys():
        names = sorted(targets.keys() ^ values.keys())
        raise DarkroomError(f"the checkpoint is for another model; tensor names that differ: {', '.join(names[:8])}.")
    for key, target in targets.items():
        put(target, values[key])


def folders(state: Path) -> list[Path]:
    """Return the checkpoints in a state folder, oldest first."""
    return sorted(path for path in state.glob("images-*") if path.is_dir())


def averaged_file(folder: Path) -> Path:
    """Return the file of a checkpoint with the averaged weights to write (`select`)."""
    best = folder / "best.safetensors"
    return best if best.is_file() else folder / "ema.safetensors"


def size(groups: Mapping[str, Tensors]) -> int:
    """Return the bytes of the tensors of a checkpoint."""
    return sum(value.nbytes for tensors in groups.values() for value in tensors.values())


def copied(groups: Mapping[str, Tensors], before: Mapping[str, Tensors]) -> dict[str, Tensors]:
    """Copy the groups to the CPU, so that the training no longer changes them.

    They reuse the memory of the previous copy if they fit: fresh memory takes several times as long.
    """
    copies: dict[str, Tensors] = {}
    for name, tensors in groups.items():
        previous, copies[name] = before.get(name, {}), {}
        for key, value in tensors.items():
            place = previous.get(key)
            fits = place is not None and place.shape == value.shape and place.dtype == value.dtype
            copies[name][key] = place.copy_(value) if place is not None and fits else value.to("cpu", copy=True)
    return copies


def write_tensors(path: Path, tensors: Tensors) -> str:
    """Write a safetensors file, one tensor after the other, flush it, and return its SHA-256.

    The format: 8 bytes with the length of a JSON header, the header with dtype, shape and offsets of each tensor, the
    values. The library's own writer holds the file in memory twice, refuses weights with two names, and hides a full
    disk behind an error of its own. The hash is computed while writing, from the intended bytes.
    """
    header: dict[str, Any] = {}
    at = 0
    for key, value in tensors.items():
        place = [at, at + value.nbytes]
        header[key] = {"dtype": _DTYPES[value.dtype], "shape": list(value.shape), "data_offsets": place}
        at = place[1]
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    digest = hashlib.sha256()
    with path.open("wb") as file:
        for piece in (struct.pack("<Q", len(text)), text, *map(_bytes, tensors.values())):
            digest.update(piece)
            file.write(piece)
        file.flush()
        os.fsync(file.fileno())
    return digest.hexdigest()


def _bytes(value: Tensor) -> Any:
    """Return a tensor's values as a buffer, without a copy if it is contiguous on the CPU."""
    return memoryview(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())  # type: ignore[arg-type]


def save(
    state: Path,
    images: int,
    groups: Mapping[str, Tensors],
    metadata: Mapping[str, Any],
    keep: int,
    protected: Path | None = None,
) -> Path:
    """Write the checkpoint of `images` images seen, and keep the newest `keep`.

    At least 2 stay, as the newest may turn out damaged, and `protected`, which is being copied elsewhere.
    """
    folder = state / f"images-{images:012d}"
    files: dict[str, str] = {}
    with atomic_folder(folder) as temporary:
        for name, tensors in groups.items():
            files[f"{name}.safetensors"] = write_tensors(temporary / f"{name}.safetensors", tensors)
        write_manifest(temporary, KIND, images=images, files=files, facts=dict(metadata))
    for old in folders(state)[: -max(2, keep)]:
        if old != protected:
            shutil.rmtree(old)
    return folder


def verify(folder: Path) -> dict[str, Any]:
    """Return the manifest of a checkpoint, after checking its own hash and that of each file.

    Raises:
        ArtifactError: something is missing or damaged; names the file.
    """
    check_seal(folder)
    return open_artifact(folder, KIND)


def read(folder: Path) -> tuple[int, dict[str, Tensors], dict[str, Any]]:
    """Return (images, groups, metadata) of a checkpoint.

    Raises:
        ArtifactError: a file is missing or damaged.
    """
    manifest = verify(folder)
    groups = {Path(name).stem: load_file(folder / name) for name in manifest["files"]}
    return manifest["images"], groups, manifest["facts"]


def newest(state: Path) -> Path | None:
    """Return the newest complete checkpoint, or None.

    Removes what a killed writer left: a folder, or the file that tests write access. A damaged checkpoint is renamed
    with a message, and the one before it is used.
    """
    for stump in state.glob(".images-*.tmp-*"):
        if stump.is_dir():
            shutil.rmtree(stump, ignore_errors=True)  # another process may remove it meanwhile
        else:
            stump.unlink(missing_ok=True)
    for folder in reversed(folders(state)):
        try:
            verify(folder)
        except DarkroomError as error:
            aside = folder.with_name(f"damaged-{folder.name}")
            shutil.rmtree(aside, ignore_errors=True)
            folder.rename(aside)
            print(f"checkpoint {folder.name} is damaged and was renamed to {aside}: {error}")
        else:
            return folder
    return None
