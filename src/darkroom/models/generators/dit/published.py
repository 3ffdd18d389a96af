"""Names of tensors in published DiT weights, of the paper's code and of diffusers, and ours.

The paper's code (facebookresearch/DiT) and ours name the same tensors differently, one to one. Diffusers'
`DiTTransformer2DModel` stores queries, keys and values separately, a copy of the embeddings of time and class in each
block, and no table of positions.
"""

import re
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

import torch
from torch import Tensor

from darkroom.errors import DarkroomError

# The beginnings of names: ours, those of the paper's code and of diffusers, which stores the embeddings in each block.
_OURS, _PAPER, _DIFFUSERS = range(3)
_EMBEDDING = "norm1.emb."
_NAMES = (
    ("patches.", "x_embedder.proj.", "pos_embed.proj."),
    ("positions", "pos_embed", None),
    ("time.mlp.0.", "t_embedder.mlp.0.", f"{_EMBEDDING}timestep_embedder.linear_1."),
    ("time.mlp.2.", "t_embedder.mlp.2.", f"{_EMBEDDING}timestep_embedder.linear_2."),
    ("labels.", "y_embedder.embedding_table.", f"{_EMBEDDING}class_embedder.embedding_table."),
    ("head.linear.", "final_layer.linear.", "proj_out_2."),
    ("head.modulation.1.", "final_layer.adaLN_modulation.1.", "proj_out_1."),
)
_IN_BLOCKS = (  # after the block's number
    ("qkv.", "attn.qkv.", None),
    ("out.", "attn.proj.", "attn1.to_out.0."),
    ("mlp.0.", "mlp.fc1.", "ff.net.0.proj."),
    ("mlp.2.", "mlp.fc2.", "ff.net.2."),
    ("modulation.1.", "adaLN_modulation.1.", "norm1.linear."),
)
_PROJECTIONS = ("attn1.to_q.", "attn1.to_k.", "attn1.to_v.")
_HEAD = ("head.linear.weight", "head.linear.bias")
_WRAPPERS = ("module.", "_orig_mod.")  # of DistributedDataParallel and torch.compile


def to_ours(names: Collection[str]) -> Callable[[Mapping[str, Tensor]], dict[str, Tensor]] | None:
    """Return the function that maps tensor names to ours; None: they are not those of a published DiT."""
    if "x_embedder.proj.weight" in names:
        return ours_from_published
    return ours_from_diffusers if "pos_embed.proj.weight" in names and "proj_out_2.weight" in names else None


def unwrapped(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return tensors without the prefixes that DistributedDataParallel and torch.compile give to all names."""
    bare = dict(tensors)
    for prefix in _WRAPPERS:
        if bare and all(name.startswith(prefix) for name in bare):
            bare = {name.removeprefix(prefix): tensor for name, tensor in bare.items()}
    return bare


def to_published(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return our tensors by the names of the paper's code, `pos_embed` as (1, N, D)."""
    named = {_renamed(name, _OURS, _PAPER): tensor for name, tensor in tensors.items()}
    return {name: tensor[None] if name == "pos_embed" else tensor for name, tensor in named.items()}


def ours_from_published(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors of the paper's code by our names; other names are unchanged."""
    named = {_renamed(name, _PAPER, _OURS): tensor for name, tensor in tensors.items()}
    return {name: tensor[0] if name == "positions" and tensor.ndim == 3 else tensor for name, tensor in named.items()}


# SiT (Ma et al., 2024, arXiv 2401.08740): DiT's names, and a velocity that points from noise to data, ours from data to
# noise. Its networks have a second output, which is never read.


def ours_from_sit(tensors: Mapping[str, Tensor], path: Path) -> dict[str, Tensor]:
    """Return tensors of a SiT, by our names, as those of a network whose velocity points to noise.

    The last layer has p² C outputs, or p² 2 C; then the second half of each place is dropped. The rest is negated.

    Args:
        tensors: by our names.
        path: the file, for the message.

    Raises:
        DarkroomError: the last layer has other outputs.
    """
    _, channels, patch, _ = tensors["patches.weight"].shape
    named = dict(tensors)
    for name in _HEAD:
        if name not in named:
            continue
        if len(named[name]) not in (patch**2 * channels, 2 * patch**2 * channels):
            raise DarkroomError(
                f"{path} has {len(named[name])} outputs for the {patch}x{patch}x{channels} numbers of a token, but a "
                "SiT has as many, or twice as many: use a file with a SiT."
            )
        named[name] = -named[name].unflatten(0, (patch**2, -1))[:, :channels].flatten(0, 1)
    return named


def sit_from_ours(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return tensors by our names as those of a SiT with one output a channel (`learn_sigma` false there)."""
    return {name: -tensor if name in _HEAD else tensor for name, tensor in tensors.items()}


def to_diffusers(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return our tensors by diffusers' names, without the table of positions, which is computed there."""
    depth = 1 + max(int(name.split(".")[1]) for name in tensors if name.startswith("blocks."))
    named = {}
    for name, tensor in tensors.items():
        theirs = _renamed(name, _OURS, _DIFFUSERS).replace("blocks.", "transformer_blocks.", 1)
        if match := re.fullmatch(r"blocks\.(\d+)\.qkv\.(weight|bias)", name):
            for projection, part in zip(_PROJECTIONS, tensor.chunk(3), strict=True):
                named[f"transformer_blocks.{match[1]}.{projection}{match[2]}"] = part.clone()
        elif theirs.startswith(_EMBEDDING):
            named |= {f"transformer_blocks.{block}.{theirs}": tensor.clone() for block in range(depth)}
        elif name != "positions":
            named[theirs] = tensor
    return named


def ours_from_diffusers(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return diffusers' tensors by our names, with `positions` only where the file has a table.

    Raises:
        DarkroomError: the blocks embed time or class differently, which this DiT, with one embedding, cannot hold.
    """
    named: dict[str, Tensor] = {}
    parts: dict[str, dict[str, Tensor]] = {}  # queries, keys and values that belong together
    for name, tensor in tensors.items():
        block, rest = _block(name, "transformer_blocks")
        if name == "pos_embed.pos_embed":
            named["positions"] = tensor[0] if tensor.ndim == 3 else tensor
        elif rest.startswith(_EMBEDDING):
            ours = _renamed(rest, _DIFFUSERS, _OURS)
            if not torch.equal(named.setdefault(ours, tensor), tensor):
                raise DarkroomError(
                    f"its blocks have different embeddings ({name} differs from the previous block), but a DiT shares "
                    "one among all blocks: weights of this kind are not supported."
                )
        elif projection := next((each for each in _PROJECTIONS if rest.startswith(each)), None):
            parts.setdefault(f"{block}qkv.{rest.removeprefix(projection)}", {})[projection] = tensor
        else:
            named[_renamed(block + rest, _DIFFUSERS, _OURS)] = tensor
    joined = {name: torch.cat([part[each] for each in _PROJECTIONS if each in part]) for name, part in parts.items()}
    return named | joined


def _block(name: str, blocks: str = "blocks") -> tuple[str, str]:
    """Return `blocks.NUMBER.`, or "" for a tensor outside of blocks, and the rest of a name."""
    match = re.match(rf"{blocks}(\.\d+\.)(.*)", name)
    return (f"blocks{match[1]}", match[2]) if match else ("", name)


def _renamed(name: str, source: int, target: int) -> str:
    """Return a name of one column of the tables by another column; names in no row are unchanged."""
    block, rest = _block(name)
    for row in _IN_BLOCKS if block else _NAMES:
        one, other = row[source], row[target]
        if one is not None and other is not None and rest.startswith(one):
            return block + other + rest.removeprefix(one)
    return name
