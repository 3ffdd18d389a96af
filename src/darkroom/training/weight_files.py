"""Find and read weights in a folder that `save_pretrained` wrote, ours or diffusers'.

A pickle can call any function that its author names. Only networks of a published format open one, by `read_pickled`:
torch's restricted unpickler makes only tensors and plain values, and stops at any other name before anything is
called.
"""

import json
import pickle
import re
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from darkroom.artifacts.manifest import NAME, check_file
from darkroom.errors import DarkroomError

Tensors = dict[str, Tensor]
NAMES = ("model.safetensors", "diffusion_pytorch_model.safetensors")
PICKLES = (".bin", ".ckpt", ".pickle", ".pkl", ".pt", ".pth")


def require_safetensors(name: str) -> None:
    """Raise an error if a name or URL is that of a pickle.

    Raises:
        DarkroomError: it is one; says how to convert it.
    """
    if urlsplit(name).path.lower().endswith(PICKLES):
        raise DarkroomError(
            f"{name} is a pickle, which can run code, so it is not opened: convert it (docs/how-to/fine-tune.md)."
        )


def weights_in(folder: Path) -> Path | None:
    """Return the weights file directly in a folder, or None.

    Raises:
        DarkroomError: there are several, or only pickles.
    """
    files = [folder / name for name in NAMES if (folder / name).is_file()]
    if len(files) > 1:
        names = " and ".join(path.name for path in files)
        raise DarkroomError(f"{folder} contains {names}: keep only the one to use, or name that file.")
    if not files and folder.is_dir():
        for path in sorted(folder.iterdir()):
            if path.name.startswith(("pytorch_model", "diffusion_pytorch_model")):
                require_safetensors(str(path))
    return files[0] if files else None


def locate(folder: Path, modules: Iterable[str]) -> dict[str, Path]:
    """Return the weights of each module that has any: `{module: file}`.

    A module's weights are in a subfolder or a file with its name. Weights in the folder itself belong to the first
    module, the one that `save_pretrained` writes.

    Raises:
        DarkroomError: no module has any.
    """
    paths: dict[str, Path] = {}
    names = list(modules)
    for name in names:
        path = weights_in(folder / name) or folder / f"{name}.safetensors"
        if path.is_file():
            paths[name] = path
    if (top := weights_in(folder)) is not None:
        paths.setdefault(names[0], top)
    if not paths:
        raise DarkroomError(
            f"{folder} contains no weights: expected {' or '.join(NAMES)} there or in a subfolder or "
            f"a file with the name of a module ({', '.join(names)}). Check `init.folder` in params.yaml."
        )
    return paths


def _check(path: Path) -> None:
    """Check a file against a manifest in its folder that names it, if any: safetensors has no checksum."""
    manifest = path.parent / NAME
    try:
        recorded = json.loads(manifest.read_text()).get("files", {}).get(path.name) if manifest.is_file() else None
    except (ValueError, AttributeError) as error:
        raise DarkroomError(f"{manifest} is damaged ({error}): restore the folder from its source.") from error
    if recorded is not None:
        check_file(path, recorded)


def read_weights(path: Path) -> Tensors:
    """Return the tensors of a safetensors file, on the CPU.

    Raises:
        DarkroomError: the file is a pickle, missing, damaged, or differs from its manifest; names it.
    """
    require_safetensors(path.name)
    _check(path)
    try:
        return load_file(path)
    except FileNotFoundError as error:
        raise DarkroomError(f"{path} is missing: download it again.") from error
    except SafetensorError as error:
        raise DarkroomError(f"{path} is not a complete safetensors file ({error}): download it again.") from error


def pickle_in(path: Path) -> Path | None:
    """Return the `.pt` file at a path, or the only one in a folder without safetensors, or None.

    Raises:
        DarkroomError: the folder holds several.
    """
    if path.is_file():
        return path if path.suffix.lower() in PICKLES else None
    files = sorted(path.glob("*.pt")) if path.is_dir() and not weights_in(path) else []
    if len(files) > 1:
        raise DarkroomError(f"{path} contains {', '.join(each.name for each in files)}: name one of these files.")
    return files[0] if files else None


def read_pickled(path: Path, *allowed: type) -> Any:
    """Return the content of a file of `torch.save`, on the CPU: only tensors, plain values, and classes in `allowed`.

    Raises:
        DarkroomError: it requests code, which did not run; or it is damaged, or not a file of torch.
    """
    try:
        with torch.serialization.safe_globals([*allowed]):
            return torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
    except Exception as error:  # torch's, pickle's and zipfile's, which have no common base
        text = str(error)
        if isinstance(error, pickle.UnpicklingError) and (match := re.search(r"GLOBAL ([\w.]+)", text)):
            raise DarkroomError(
                f"{path} is not a plain file of weights: it requests {match[1]}, which loading a pickle may call. It "
                "was rejected before any of it ran. Use weights as safetensors, or from a source that you trust."
            ) from error
        shown = " ".join(text.split())[:120] or "it is empty"
        raise DarkroomError(
            f"{path} is damaged, truncated, or not a file of torch ({path.stat().st_size:,} bytes; {shown}): "
            "download it again, and compare its size with that at its source."
        ) from error
