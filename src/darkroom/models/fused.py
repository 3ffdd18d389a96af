"""Layers that are several in one."""

from typing import TypeVar

from torch import nn

_Layer = TypeVar("_Layer", bound=nn.Module)


def fused(layer: _Layer, chunks: int) -> _Layer:
    """Return a layer whose outputs are those of `chunks` layers, one after the other: queries, keys and values, say.

    The mark changes nothing of the layer. Muon may orthogonalise the parts apart (`training.muon_chunks`).
    """
    layer.chunks = chunks  # type: ignore[assignment]
    return layer
