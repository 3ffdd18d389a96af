"""The weights that a training begins with, where they are not random: fine-tuning."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

import torch
from torch import Tensor, nn

from darkroom.errors import DarkroomError
from darkroom.params.numbers import NO_FILE
from darkroom.params.training import Init
from darkroom.training.download import fetched
from darkroom.training.weight_files import Tensors, locate, read_weights, require_safetensors


def _own_names(module: nn.Module, tensors: Tensors) -> Tensors:
    """Return a file's tensors under the names of `module.state_dict()`.

    A module whose `save_pretrained` writes other names than its own has a method `own_names` that maps them back.
    """
    rename = getattr(module, "own_names", None)
    return tensors if rename is None else rename(tensors)


def _given(modules: Mapping[str, nn.Module], files: Mapping[str, Path]) -> Tensors:
    """Return what the files hold, as MODULE/KEY.

    A file whose names already begin with modules' names, as in a checkpoint, is taken as it is.
    """
    given: Tensors = {}
    for name, path in files.items():
        tensors = read_weights(path)
        if tensors and all(key.partition("/")[0] in modules for key in tensors):
            given |= tensors
        else:
            given |= {f"{name}/{key}": value for key, value in _own_names(modules[name], tensors).items()}
    return given


@dataclass
class _Fit:
    """How what is given fits what the modules have: names of both, by what is to be done with them."""

    fits: list[str] = field(default_factory=list)
    random: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)


def _compare(own: Tensors, given: Tensors, skip: list[str]) -> _Fit:
    found = _Fit()
    unused = set(skip)
    for key in sorted(own.keys() | given.keys()):
        matching = {glob for glob in skip if fnmatchcase(key, glob)}
        unused -= matching
        if matching:
            found.random += [key] if key in own else []
        elif key not in given:
            found.wrong.append(f"missing: {key} {list(own[key].shape)}")
        elif key not in own:
            found.wrong.append(f"unexpected: {key} {list(given[key].shape)}")
        elif own[key].shape != given[key].shape:
            found.wrong.append(f"shape: {key} is {list(own[key].shape)} here and {list(given[key].shape)} in the file")
        elif own[key].is_floating_point() != given[key].is_floating_point():
            found.wrong.append(f"type: {key} is {own[key].dtype} here and {given[key].dtype} in the file")
        else:
            found.fits.append(key)
    found.wrong += [f"nothing is called {glob}, which `init.skip` names" for glob in sorted(unused)]
    return found


@torch.no_grad()
def initialise(modules: Mapping[str, nn.Module], init: Init) -> None:
    """Give fresh modules the weights that `init` names, in place; without a folder or URL they stay as they are.

    Modules are compared with the files as a whole before the first weight is copied. A tensor keeps the module's own
    dtype and device: float16 weights of the Hub become float32 parameters.

    Args:
        modules: as the recipe names them, before anything is wrapped around them; the first is the one that
            `save_pretrained` writes.
        init: where the weights are, and which begin at random all the same.

    Raises:
        DarkroomError: no weights there, a pickle, a hash that is wrong or not given, or weights that do not fit: all
            that is missing, unexpected or of another shape, in one list.
    """
    if init.url is None and init.folder == NO_FILE:
        return
    if init.url is not None:
        require_safetensors(init.url)
        source, files = init.url, {next(iter(modules)): fetched(init.url, init.sha256)}
    else:
        source, folder = init.folder, Path(init.folder)
        files = {next(iter(modules)): folder} if folder.is_file() else locate(folder, modules)
    own: dict[str, Tensor] = {
        f"{name}/{key}": value for name, module in modules.items() for key, value in module.state_dict().items()
    }
    given = _given(modules, files)
    found = _compare(own, given, init.skip)
    if found.wrong:
        raise DarkroomError(
            f"the weights of {source} do not fit:\n  "
            + "\n  ".join(found.wrong)
            + "\nChange the model's parameters, or name under `init.skip` in params.yaml, as globs over MODULE/KEY, "
            "what is to begin at random."
        )
    for key in found.fits:
        own[key].copy_(given[key])
    at_random = f", {len(found.random)} at random (`init.skip`)" if found.random else ""
    values = sum(own[key].numel() for key in found.fits)
    print(f"begins with the weights of {source}: {len(found.fits)} tensors, {values:,} values{at_random}")
