"""A CLIP that scores: of a folder as `train_clip` writes it, or of a file that others have published."""

from pathlib import Path

import torch
from safetensors.torch import save

from darkroom.artifacts.hashing import sha256_bytes
from darkroom.errors import DarkroomError
from darkroom.models.clip.load import load_clip, stored
from darkroom.models.clip.network import Clip
from darkroom.models.clip.package import load
from darkroom.remote import telling


def open_clip(path: Path, key: str) -> Clip:
    """Return the CLIP at `path`, on the CPU; `key` of params.yaml names it.

    A file is OpenAI's archive of TorchScript (ViT-B-32.pt), or a state dict; of texts that are too long for it the
    beginning counts. Its identity is the one that it has as `train_clip.pretrained`.

    Raises:
        DarkroomError: nothing there, or no CLIP.
    """
    if path.is_dir():
        return load_clip(path)
    if not path.is_file():
        raise DarkroomError(
            f"`{key}` in params.yaml names {path}, and there is neither a file nor a folder: give models/clip, a file "
            "with weights of CLIP, or data/none to measure no similarity."
        )
    with telling(f"the CLIP in {path}, which `{key}` names, cannot be read"), torch.random.fork_rng(devices=[]):
        network, _ = load(str(path), device="cpu")
    return Clip(network, sha256_bytes(save(stored(network))), truncate=True)
