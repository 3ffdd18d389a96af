"""Load the initial weights of a training for fine-tuning.

Files behind a URL are fetched by fsspec and stored once by content, `.darkroom/downloads/SHA256.safetensors`.
params.yaml holds the hash, so a file that was fetched once is found again without a network, and another file behind
the same URL is never read.
"""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import fsspec
import torch
from torch import Tensor, nn

from darkroom.artifacts.manifest import NAME as MANIFEST
from darkroom.artifacts.manifest import read_manifest, sha256_file
from darkroom.errors import DarkroomError
from darkroom.params.section import NO_FILE
from darkroom.params.training import Init
from darkroom.remote import library_errors, require_no_password
from darkroom.training.state import root
from darkroom.training.weight_files import PICKLES, Tensors, locate, read_weights, require_safetensors

_BLOCK = 8 * 2**20  # bytes
_LISTED = 30  # maximum number of misfits in a message


def _published(modules: Mapping[str, nn.Module], path: Path) -> Tensors | None:
    """Return the tensors of a format that only the first module can read, as MODULE/KEY; None: another format.

    Such a module has a method `own_weights(path)`; `pickles` are the extensions of files behind URLs that it opens with
    an unpickler that calls nothing. Tensors of other modules are named MODULE/KEY, and dropped if there is no such
    module.
    """
    first = next(iter(modules))
    own_weights = getattr(modules[first], "own_weights", None)
    tensors = None if own_weights is None else own_weights(path)
    if tensors is None:
        return None
    named = {key if "/" in key else f"{first}/{key}": value for key, value in tensors.items()}
    return {key: value for key, value in named.items() if key.partition("/")[0] in modules}


def _read_tensors(modules: Mapping[str, nn.Module], files: Mapping[str, Path]) -> Tensors:
    """Return the tensors of the files, as MODULE/KEY.

    A file whose names already start with module names, as in a checkpoint, is used unchanged. A module whose
    `save_pretrained` writes other names than its own has a method `own_names` that maps them back.
    """
    weights: Tensors = {}
    for name, path in files.items():
        tensors = read_weights(path)
        if tensors and all(key.partition("/")[0] in modules for key in tensors):
            weights |= tensors
        else:
            rename = getattr(modules[name], "own_names", dict)
            weights |= {f"{name}/{key}": value for key, value in rename(tensors).items()}
    return weights


def _compare(own: Tensors, loaded: Tensors, skip: list[str]) -> tuple[list[str], list[str], list[str]]:
    """Return the names that fit, those initialised at random, and a message for each misfit."""
    fits, random, wrong, unused = list[str](), list[str](), list[str](), set(skip)
    for key in sorted(own.keys() | loaded.keys()):
        matching = {glob for glob in skip if fnmatchcase(key, glob)}
        unused -= matching
        if matching:
            random += [key] if key in own else []
        elif key not in loaded:
            wrong.append(f"missing: {key} {list(own[key].shape)}")
        elif key not in own:
            wrong.append(f"unexpected: {key} {list(loaded[key].shape)}")
        elif own[key].shape != loaded[key].shape:
            wrong.append(f"shape: {key} is {list(own[key].shape)} here and {list(loaded[key].shape)} in the file")
        elif own[key].is_floating_point() != loaded[key].is_floating_point():
            wrong.append(f"type: {key} is {own[key].dtype} here and {loaded[key].dtype} in the file")
        else:
            fits.append(key)
    return fits, random, wrong + [f"no weight matches {glob}, which `init.skip` names" for glob in sorted(unused)]


@torch.no_grad()
def initialise(modules: Mapping[str, nn.Module], init: Init) -> None:
    """Load the weights that `init` names into fresh modules, in place; without a folder or URL, do nothing.

    All modules are compared with the files before the first weight is copied. A tensor keeps the module's own
    dtype and device: float16 weights of the Hub become float32 parameters.

    Args:
        modules: as the recipe names them, before anything is wrapped around them; the first is the one that
            `save_pretrained` writes.
        init: where the weights are, and which ones to initialise at random.

    Raises:
        DarkroomError: no weights, a pickle, a wrong or missing hash, or weights that do not fit: the tensors that are
            missing, unexpected or of another shape, in one list.
    """
    if init.url is None and init.folder == NO_FILE:
        return
    first = next(iter(modules))
    if init.url is not None:
        if _suffix(init.url) not in getattr(modules[first], "pickles", ()):
            require_safetensors(init.url)
        source, path = init.url, fetched(init.url, init.sha256)
    else:
        source, path = init.folder, Path(init.folder)
    own: dict[str, Tensor] = {
        f"{name}/{key}": value for name, module in modules.items() for key, value in module.state_dict().items()
    }
    loaded = _published(modules, path)
    if loaded is None:
        loaded = _read_tensors(modules, {first: path} if path.is_file() else locate(path, modules))
    fits, random, wrong = _compare(own, loaded, init.skip)
    if wrong:
        more = len(wrong) - _LISTED
        raise DarkroomError(
            f"the weights of {source} do not fit the model:\n  "
            + "\n  ".join([*wrong[:_LISTED], *([f"and {more:,} more"] if more > 0 else [])])
            + "\nChange the model's parameters, or list the weights to initialise at random under `init.skip` in "
            "params.yaml, as globs over MODULE/KEY."
        )
    for key in fits:
        own[key].copy_(loaded[key])
    at_random = f", {len(random)} at random (`init.skip`)" if random else ""
    values = sum(own[key].numel() for key in fits)
    print(f"initialised from {source}: {len(fits)} tensors, {values:,} values{at_random}")


def initial_manifest(folder: str, kind: str) -> Mapping[str, Any]:
    """Return the manifest of a folder of weights; empty if there is no folder, or if Darkroom did not write it."""
    has_manifest = folder != NO_FILE and (Path(folder) / MANIFEST).is_file()
    return read_manifest(Path(folder), kind) if has_manifest else {}


def require_same(key: str, begun: Mapping[str, Any], metadata: Mapping[str, Any], names: Sequence[str]) -> None:
    """Check that the initial weights of a training, which `key` of params.yaml names, come from the same inputs.

    `begun` is their manifest, or empty; its entries `names` must equal those in `metadata` of the training. None for a
    CLIP means no condition, which the shapes show.

    Raises:
        DarkroomError: an input differs; names it.
    """
    for name in names:
        if name not in begun or name not in metadata:
            continue
        ours, theirs = metadata[name], begun[name]
        if ours != theirs and (name == "tokenizer" or None not in (ours, theirs)):
            raise DarkroomError(
                f"the weights under `{key}` were trained with another {name} ({theirs}, here it is {ours}): use "
                f"other weights, or {NO_FILE} to start from random ones."
            )


def downloads() -> Path:
    """Return the folder of all downloads: in the main checkout, also from a queued experiment's copy of it."""
    return root().parent / "downloads"


def _suffix(url: str) -> str:
    return Path(urlsplit(url).path).suffix.lower()


def _local_path(url: str, sha256: str) -> Path:
    """Return the local path of the file behind a URL. Pickles keep their extension, so that readers recognise them."""
    suffix = _suffix(url)
    return downloads() / f"{sha256}{suffix if suffix in PICKLES else '.safetensors'}"


def _blocks(url: str) -> Iterator[bytes]:
    """Yield the bytes behind a URL. Only errors of the network are converted here; the runner reports a full disk."""
    with library_errors(f"{url} cannot be read"), fsspec.open(url, "rb") as file:
        while block := file.read(_BLOCK):
            yield block


def _download(url: str) -> tuple[Path, str]:
    """Fetch a URL, and return its local path and its SHA-256, which names the file."""
    downloads().mkdir(parents=True, exist_ok=True)
    print(f"downloading {url}")
    with tempfile.TemporaryDirectory(prefix=".part-", dir=downloads()) as folder:
        part = Path(folder) / "part"
        with part.open("wb") as file:
            file.writelines(_blocks(url))
        actual = sha256_file(part)
        return part.replace(_local_path(url, actual)), actual


def fetched(url: str, sha256: str | None, key: str = "`init.sha256`") -> Path:
    """Return the file behind `url`, downloading it unless it is already here.

    Args:
        url: anything fsspec opens; `hf://OWNER/NAME@REVISION/FILE` is the Hub.
        sha256: of the file. None is an error, after the download, that reports the hash to write down.
        key: of params.yaml that holds it, for messages.

    Raises:
        DarkroomError: the URL cannot be read or holds a password, no hash is given, or the hash of the file differs.
    """
    require_no_password(url, "init.url")
    if sha256 is not None:
        path = _local_path(url, sha256)
        if path.is_file() and sha256_file(path) == sha256:
            return path
    path, actual = _download(url)
    if sha256 is None:
        raise DarkroomError(
            f"{url} has the sha256 {actual}: set {key} to it in params.yaml, since a URL alone does not "
            "identify the initial weights of a training. The file is kept and will not be downloaded again."
        )
    if actual != sha256:
        raise DarkroomError(
            f"{url} has the sha256 {actual}, but {key} in params.yaml is {sha256}: the file behind the URL has "
            "changed. Nothing was read from it. Find the right file, or set the new hash if you trust this one."
        )
    return path
