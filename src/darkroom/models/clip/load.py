"""Write and open `models/clip/`, and read published weights, also for an evaluator.

`model.pt` is a state dict as OpenAI's networks hold it, most weights in float16, which `clip.load` opens; the same
tensors are also stored as safetensors, which can initialise a training. Their hash is the fingerprint of the CLIP.
"""

import copy
import io
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save
from torch import Tensor, nn

from darkroom.artifacts.atomic import write_bytes
from darkroom.artifacts.manifest import ArtifactError, open_artifact, sha256_bytes, sha256_file
from darkroom.artifacts.models import CLIP as KIND
from darkroom.artifacts.models import CLIP_FOLDER
from darkroom.artifacts.networks import WEIGHTS, write_network
from darkroom.errors import DarkroomError
from darkroom.models.clip.network import CLIP, Clip, build_model, convert_weights, load
from darkroom.models.clip.openclip import OpenClip, read_open_clip
from darkroom.models.clip.settings import OPEN_CLIP_CONFIG
from darkroom.remote import library_errors

PICKLE = "model.pt"  # what `clip.load` opens


def stored(network: CLIP) -> dict[str, Tensor]:
    """Return the weights in the dtypes of `clip.load`: those of matrix products in float16, the others in float32."""
    halved = copy.deepcopy(network).cpu().float()
    convert_weights(halved)
    return {name: value.detach().contiguous() for name, value in nn.Module.state_dict(halved).items()}


def save_clip(folder: Path, network: CLIP | OpenClip) -> dict[str, Any]:
    """Write `model.pt`, `model.safetensors` and `config.json`; return entries of the manifest.

    For a CLIP of open_clip, the two files that open_clip opens are written instead.

    Returns:
        weights (the fingerprint), embed_dim, text_width, context_length, image_size.
    """
    if isinstance(network, OpenClip):
        network.write(folder)
        return {**_sizes(network), "weights": network.fingerprint}
    state = stored(network)
    metadata = _sizes(Clip(build_model(dict(state)), ""))
    write_network(folder, metadata, state)
    buffer = io.BytesIO()  # torch.save would write the name of a file into the archive
    torch.save(state, buffer)
    write_bytes(folder / PICKLE, buffer.getvalue())
    return {**metadata, "weights": sha256_file(folder / WEIGHTS)}


def _sizes(clip: Clip) -> dict[str, int]:
    return {name: getattr(clip, name) for name in ("embed_dim", "text_width", "context_length", "image_size")}


def load_clip(folder: Path = CLIP_FOLDER) -> Clip:
    """Return the CLIP in `folder`.

    Raises:
        ArtifactError: missing or damaged (the message names the file), or the manifest says that there is no CLIP.
    """
    manifest = open_artifact(folder, KIND)
    if manifest["weights"] is None:
        raise ArtifactError(
            f"{folder} holds no CLIP: set `train_clip.source` to trained or pretrained, and run `dvc repro`."
        )
    truncate = manifest["long_captions"] == "truncate"
    if (folder / OPEN_CLIP_CONFIG).is_file():
        return read_open_clip(str(folder), truncate=truncate, fingerprint=manifest["weights"])
    with torch.random.fork_rng(devices=[]):  # the initial weights are replaced: the global random state must not change
        network = build_model(load_file(folder / WEIGHTS))
    return Clip(network, manifest["weights"], truncate=truncate)


def read_pretrained(name: str | None, file: str, downloads: Path) -> CLIP:
    """Return a published CLIP, on the CPU.

    Args:
        name: the name of a network of OpenAI, downloaded once and checked by its SHA-256; None: read the file.
        file: the path of a TorchScript archive, as OpenAI publishes them, or of a state dict, read as tensors only.
        downloads: the folder for downloads.

    Raises:
        DarkroomError: there is no such file, no internet connection, or no CLIP in the file.
    """
    source = f"OpenAI's CLIP {name}" if name else f"the CLIP in {file}"
    failure = f"{source}, which `train_clip.pretrained` names, cannot be read"
    with library_errors(failure), torch.random.fork_rng(devices=[]):
        network, _ = load(name or file, device="cpu", download_root=str(downloads))
    return network


def open_clip(path: Path, key: str) -> Clip:
    """Return the CLIP at `path`, on the CPU; `key` is the key of params.yaml with the path, for messages.

    A folder is one that `train_clip` writes, or of open_clip's format; a file OpenAI's TorchScript archive
    (ViT-B-32.pt), or a state dict. A published CLIP truncates texts that are too long, and its fingerprint is the same
    as under `train_clip.pretrained`.

    Raises:
        DarkroomError: there is no file or folder, or it holds no CLIP.
    """
    if path.is_dir():
        if (path / OPEN_CLIP_CONFIG).is_file() and not (path / "manifest.json").is_file():
            return read_open_clip(str(path), truncate=True)
        return load_clip(path)
    if not path.is_file():
        raise DarkroomError(
            f"`{key}` is {path}, which does not exist: set it to models/clip, a file of weights, or data/none."
        )
    with library_errors(f"the CLIP in {path}, which `{key}` names, cannot be read"), torch.random.fork_rng(devices=[]):
        network, _ = load(str(path), device="cpu")
    return Clip(network, sha256_bytes(save(stored(network))), truncate=True)
