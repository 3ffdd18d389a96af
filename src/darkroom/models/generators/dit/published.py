"""Names of tensors in published DiT weights, of the paper's code and of diffusers, and ours.

The paper's code (facebookresearch/DiT) and ours name the same tensors differently, one to one. Diffusers'
`DiTTransformer2DModel` stores queries, keys and values apart, a copy of the embeddings of time and class in each
block, and no table of positions.
"""

import re
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from darkroom.errors import DarkroomError

# Ours, and those of the paper's code, by the part of the name that differs.
_PAPER = {
    "patches.": "x_embedder.proj.",
    "positions": "pos_embed",
    "time.mlp.": "t_embedder.mlp.",
    "labels.": "y_embedder.embedding_table.",
    "head.linear.": "final_layer.linear.",
    "head.modulation.": "final_layer.adaLN_modulation.",
}
_PAPER_IN_BLOCKS = {
    "qkv.": "attn.qkv.",
    "out.": "attn.proj.",
    "mlp.0.": "mlp.fc1.",
    "mlp.2.": "mlp.fc2.",
    "modulation.": "adaLN_modulation.",
}
# The same of diffusers, of what is stored once.
_DIFFUSERS = {
    "patches.": "pos_embed.proj.",
    "head.linear.": "proj_out_2.",
    "head.modulation.1.": "proj_out_1.",
}
_DIFFUSERS_IN_BLOCKS = {
    "out.": "attn1.to_out.0.",
    "mlp.0.": "ff.net.0.proj.",
    "mlp.2.": "ff.net.2.",
    "modulation.1.": "norm1.linear.",
}
# Stored in each block.
_EMBEDDINGS = {
    "time.mlp.0.": "timestep_embedder.linear_1.",
    "time.mlp.2.": "timestep_embedder.linear_2.",
    "labels.": "class_embedder.embedding_table.",
}
_PROJECTIONS = ("attn1.to_q.", "attn1.to_k.", "attn1.to_v.")
_HEAD = ("head.linear.weight", "head.linear.bias")
_WRAPPERS = ("module.", "_orig_mod.")  # of DistributedDataParallel and torch.compile


def is_paper(names: Mapping[str, Tensor]) -> bool:
    """Return whether tensors have the names of the paper's code."""
    return "x_embedder.proj.weight" in names


def is_diffusers(names: Mapping[str, Tensor]) -> bool:
    """Return whether tensors have diffusers' names of a DiT."""
    return "pos_embed.proj.weight" in names and "proj_out_2.weight" in names


def unwrapped(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return tensors without the prefixes that DistributedDataParallel and torch.compile give to all names."""
    found = dict(tensors)
    for prefix in _WRAPPERS:
        if found and all(name.startswith(prefix) for name in found):
            found = {name.removeprefix(prefix): tensor for name, tensor in found.items()}
    return found


# ----------------------------------------------------------------------------------------------------------------------
# The paper's code


def to_published(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return our tensors by the names of the paper's code, `pos_embed` as (1, N, D)."""
    named = {_renamed(name, _PAPER, _PAPER_IN_BLOCKS): tensor for name, tensor in tensors.items()}
    return {name: tensor[None] if name == "pos_embed" else tensor for name, tensor in named.items()}


def ours_from_published(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors of the paper's code by our names; names of no DiT stay as they are."""
    named = {_renamed(name, _back(_PAPER), _back(_PAPER_IN_BLOCKS)): tensor for name, tensor in tensors.items()}
    return {name: tensor[0] if name == "positions" and tensor.ndim == 3 else tensor for name, tensor in named.items()}


# ----------------------------------------------------------------------------------------------------------------------
# SiT (Ma et al., 2024, arXiv 2401.08740): DiT's names, and a velocity that points from noise to data, ours from data to
# noise. Its networks have a second output, which nothing ever reads.


def ours_from_sit(tensors: Mapping[str, Tensor], path: Path) -> dict[str, Tensor]:
    """Return tensors of a SiT, by our names, as those of a network whose velocity points to noise.

    The last layer has p² C outputs, or p² 2 C, of which the second half of each place is dropped. What is left is
    negated.

    Args:
        tensors: as read, by our names.
        path: of the file, for the message.

    Raises:
        DarkroomError: the last layer has other outputs.
    """
    _, channels, patch, _ = tensors["patches.weight"].shape
    made = dict(tensors)
    for name in _HEAD:
        if name not in made:
            continue
        if len(made[name]) not in (patch**2 * channels, 2 * patch**2 * channels):
            raise DarkroomError(
                f"{path} has {len(made[name])} outputs for the {patch}x{patch}x{channels} numbers of a token, and a "
                "SiT has as many, or twice as many: name the right file."
            )
        made[name] = -made[name].unflatten(0, (patch**2, -1))[:, :channels].flatten(0, 1)
    return made


def sit_from_ours(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return tensors by our names as those of a SiT with one output a channel (`learn_sigma` false there)."""
    return {name: -tensor if name in _HEAD else tensor for name, tensor in tensors.items()}


# ----------------------------------------------------------------------------------------------------------------------
# Diffusers


def to_diffusers(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return our tensors by diffusers' names, without the table of positions, which is computed there."""
    depth = 1 + max(int(name.split(".")[1]) for name in tensors if name.startswith("blocks."))
    made = {}
    for name, tensor in tensors.items():
        kind = name.rpartition(".")[2]
        if name == "positions":
            continue
        if found := re.fullmatch(r"blocks\.(\d+)\.qkv\.(weight|bias)", name):
            for projection, part in zip(_PROJECTIONS, tensor.chunk(3), strict=True):
                made[f"transformer_blocks.{found[1]}.{projection}{kind}"] = part.clone()
        elif embedding := next((theirs for ours, theirs in _EMBEDDINGS.items() if name.startswith(ours)), None):
            for block in range(depth):
                made[f"transformer_blocks.{block}.norm1.emb.{embedding}{kind}"] = tensor.clone()
        else:
            made[_renamed(name, _DIFFUSERS, _DIFFUSERS_IN_BLOCKS).replace("blocks.", "transformer_blocks.", 1)] = tensor
    return made


def ours_from_diffusers(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return diffusers' tensors by our names, with `positions` only where the file has a table.

    Raises:
        DarkroomError: the blocks embed time or class differently, which this DiT, with one embedding, cannot hold.
    """
    made: dict[str, Tensor] = {}
    parts: dict[str, dict[str, Tensor]] = {}  # queries, keys and values that belong together
    for name, tensor in tensors.items():
        block, rest = _block(name, "transformer_blocks")
        if name == "pos_embed.pos_embed":
            made["positions"] = tensor[0] if tensor.ndim == 3 else tensor
        elif embedding := re.match(r"norm1\.emb\.(.*)", rest):
            ours = _renamed(embedding[1], _back(_EMBEDDINGS), {})
            if not torch.equal(made.setdefault(ours, tensor), tensor):
                raise DarkroomError(
                    f"its blocks have different embeddings ({name} is not that of the block before), and a DiT has one "
                    "for all blocks: it was trained by other code, and cannot be read."
                )
        elif projection := next((each for each in _PROJECTIONS if rest.startswith(each)), None):
            parts.setdefault(f"{block}qkv.{rest.removeprefix(projection)}", {})[projection] = tensor
        else:
            made[_renamed(block + rest, _back(_DIFFUSERS), _back(_DIFFUSERS_IN_BLOCKS))] = tensor
    joined = {name: torch.cat([found[each] for each in _PROJECTIONS if each in found]) for name, found in parts.items()}
    return made | joined


# ----------------------------------------------------------------------------------------------------------------------


def _back(names: Mapping[str, str]) -> dict[str, str]:
    return {theirs: ours for ours, theirs in names.items()}


def _block(name: str, blocks: str = "blocks") -> tuple[str, str]:
    """Return `blocks.NUMBER.`, or "" where the tensor is of no block, and the rest of a name."""
    found = re.match(rf"{blocks}(\.\d+\.)(.*)", name)
    return (f"blocks{found[1]}", found[2]) if found else ("", name)


def _renamed(name: str, names: Mapping[str, str], in_blocks: Mapping[str, str]) -> str:
    block, rest = _block(name)
    for one, other in (in_blocks if block else names).items():
        if rest.startswith(one):
            return block + other + rest.removeprefix(one)
    return name
