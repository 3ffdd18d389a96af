"""Fused layers."""

from typing import TypeVar

from torch import nn

_Layer = TypeVar("_Layer", bound=nn.Module)


def fused(layer: _Layer, chunks: int) -> _Layer:
    """Mark a layer whose outputs are those of `chunks` layers, concatenated: for example queries, keys and values.

    The mark does not change the layer. Muon may orthogonalise the parts separately (`training.muon_chunks`).
    """
    layer.chunks = chunks  # type: ignore[assignment]
    return layer
