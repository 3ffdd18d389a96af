"""A small CLIP of random weights in a folder, as `train_clip` writes it."""

from pathlib import Path

import torch
from torch import nn

from darkroom.artifacts.manifest import file_hashes, write_manifest
from darkroom.models.clip.load import Clip, load_clip, save_clip
from darkroom.models.clip.network import Contrastive
from models.clip.clips import SIZE


def make_clip(folder: Path, seed: int = 0, long_captions: str = "stop") -> Clip:
    """Write and open a CLIP whose embeddings of different images differ."""
    torch.manual_seed(seed)
    network = Contrastive(SIZE)
    nn.init.normal_(network.visual.conv1.weight, std=0.5)
    folder.mkdir(parents=True)
    metadata = save_clip(folder, network)
    write_manifest(folder, "clip", **metadata, long_captions=long_captions, files=file_hashes(folder))
    return load_clip(folder)
