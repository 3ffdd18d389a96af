"""Muon: the momentum of a map's weight, made orthogonal. What is not such a map moves by AdamW.

Sources: Jordan, "Muon: an optimizer for hidden layers in neural networks", 2024; for the learning rate that AdamW's
serves, Liu et al., "Muon is scalable for LLM training", 2025, arXiv 2502.16982, section 2.2.
"""

import math
from typing import Any

import torch
from torch import Tensor, nn

_MAPS = (nn.Linear, nn.modules.conv._ConvNd, nn.MultiheadAttention)
_NARROW = 16  # a map with fewer inputs or outputs, as the first and the last of a network, moves by AdamW
_MOMENTUM = 0.95
_COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # of the quintic, steepest at 0: singular values end between 0.7 and 1.2
_STEPS = 5
_SCALE = 0.2  # root mean square of AdamW's usual step, in units of the learning rate


def maps(module: nn.Module) -> set[Tensor]:
    """Return the weights of a module that Muon moves.

    They are weights of linear layers, convolutions and attention with at least 16 inputs and 16 outputs. Tables,
    embeddings and codebooks are none, even where they are matrices, nor are weights under a parametrization.
    """
    return {
        parameter
        for found in module.modules()
        if isinstance(found, _MAPS)
        for parameter in found.parameters(recurse=False)
        if parameter.ndim > 1 and min(parameter.shape[:2]) >= _NARROW
    }


def orthogonal(matrix: Tensor) -> Tensor:
    """Return roughly U V' of a matrix U S V', by five steps of a Newton-Schulz iteration.

    torch.optim.Muon's works in bfloat16, in which few CPUs multiply; this one does on GPUs alone.

    Args:
        matrix: (rows, columns) float32.

    Returns:
        (rows, columns) float32; the singular values that were not tiny lie between 0.7 and 1.2.
    """
    found = matrix.bfloat16() if matrix.is_cuda else matrix
    tall = len(found) > found.shape[1]
    found = found.mT if tall else found
    found = found / found.norm().clamp(min=1e-7)
    first, third, fifth = _COEFFICIENTS
    for _ in range(_STEPS):
        square = found @ found.mT
        found = torch.addmm(found, torch.addmm(square, square, square, beta=third, alpha=fifth), found, beta=first)
    return (found.mT if tall else found).to(matrix.dtype)


class Muon(torch.optim.AdamW):
    """Muon for the groups that say `muon`, AdamW for the others, in one optimizer with one state.

    A weight W, flattened to (outputs, all else), with gradient G and learning rate r:

        M <- 0.95 M + 0.05 G,   W <- (1 - r decay) W - 0.2 r sqrt(max(rows, columns)) orthogonal(0.05 G + 0.95 M)

    so that the step has the root mean square that AdamW's has at the same rate. The state of such a weight is M,
    `momentum_buffer`.
    """

    def __init__(self, groups: list[dict[str, Any]], **settings: Any) -> None:
        super().__init__(groups, **settings)
        # A loss scaler asks only fused optimizers to leave out an overflowed step by themselves; these maps would not.
        self._step_supports_amp_scaling = False

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Take a step. The gradients of what Muon moves are gone afterwards."""
        for group in self.param_groups:
            for weight in group["params"] if group["muon"] else ():
                if weight.grad is not None:
                    self._move(weight, weight.grad, group["lr"], group["weight_decay"])
                    weight.grad = None  # AdamW leaves out what has none
        super().step(closure)

    def _move(self, weight: Tensor, gradient: Tensor, rate: float, decay: float) -> None:
        state = self.state[weight]
        if not state:
            state["momentum_buffer"] = torch.zeros_like(weight)
        momentum = state["momentum_buffer"].lerp_(gradient, 1 - _MOMENTUM)
        direction = orthogonal(gradient.lerp(momentum, _MOMENTUM).flatten(1))
        weight.mul_(1 - rate * decay)
        step = _SCALE * rate * math.sqrt(max(direction.shape))
        weight.sub_(direction.view_as(weight), alpha=step)
