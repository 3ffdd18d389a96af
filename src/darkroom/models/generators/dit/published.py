"""Names of tensors in published DiT weights, of the paper's code and of diffusers, and ours."""

import re
from collections.abc import Mapping

from torch import Tensor

# Ours, and those of the paper's code (facebookresearch/DiT), by the part of the name that differs.
_NAMES = {
    "patches.": "x_embedder.proj.",
    "positions": "pos_embed",
    "time.mlp.": "t_embedder.mlp.",
    "labels.": "y_embedder.embedding_table.",
    "head.linear.": "final_layer.linear.",
    "head.modulation.": "final_layer.adaLN_modulation.",
}
_IN_BLOCKS = {
    "qkv.": "attn.qkv.",
    "out.": "attn.proj.",
    "mlp.0.": "mlp.fc1.",
    "mlp.2.": "mlp.fc2.",
    "modulation.": "adaLN_modulation.",
}


def published_name(name: str) -> str:
    """Return what the paper's code calls one of our tensors."""
    if found := re.match(r"(blocks\.\d+\.)(.*)", name):
        block, rest = found.groups()
        return block + _renamed(rest, _IN_BLOCKS)
    return _renamed(name, _NAMES)


def _renamed(name: str, names: Mapping[str, str]) -> str:
    for ours, theirs in names.items():
        if name.startswith(ours):
            return theirs + name.removeprefix(ours)
    raise KeyError(name)


def to_published(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return our tensors by the names of the paper's code, `pos_embed` as (1, N, D)."""
    named = {published_name(name): tensor for name, tensor in tensors.items()}
    return {name: tensor[None] if name == "pos_embed" else tensor for name, tensor in named.items()}


def ours_from_published(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors of the paper's code by our names."""
    names = {theirs: ours for ours, theirs in _NAMES.items()}
    in_blocks = {theirs: ours for ours, theirs in _IN_BLOCKS.items()}
    made = {}
    for name, tensor in tensors.items():
        found = re.match(r"(blocks\.\d+\.)(.*)", name)
        ours = found[1] + _renamed(found[2], in_blocks) if found else _renamed(name, names)
        made[ours] = tensor[0] if ours == "positions" else tensor
    return made
