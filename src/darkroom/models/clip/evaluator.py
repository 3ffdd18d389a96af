"""Opens a CLIP as an evaluator: from a folder that `train_clip` writes, or from a published file."""

from pathlib import Path

import torch
from safetensors.torch import save

from darkroom.artifacts.manifest import sha256_bytes
from darkroom.errors import DarkroomError
from darkroom.models.clip.load import load_clip, stored
from darkroom.models.clip.network import Clip
from darkroom.models.clip.openclip import read_open_clip
from darkroom.models.clip.package import load
from darkroom.models.clip.settings import OPEN_CLIP_CONFIG
from darkroom.remote import telling


def open_clip(path: Path, key: str) -> Clip:
    """Return the CLIP at `path`, on the CPU; `key` is the key of params.yaml with the path, for messages.

    A folder is one that `train_clip` writes, or of open_clip's format; a file OpenAI's TorchScript archive
    (ViT-B-32.pt), or a state dict. Of what others publish too long texts are truncated, and its fingerprint is the same
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
            f"`{key}` in params.yaml names {path}, and there is neither a file nor a folder: give models/clip, a file "
            "with weights of CLIP, or data/none to measure no similarity."
        )
    with telling(f"the CLIP in {path}, which `{key}` names, cannot be read"), torch.random.fork_rng(devices=[]):
        network, _ = load(str(path), device="cpu")
    return Clip(network, sha256_bytes(save(stored(network))), truncate=True)
