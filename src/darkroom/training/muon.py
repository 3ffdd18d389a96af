"""Muon: the momentum of a hidden layer's weight matrix, orthogonalised. All other parameters move by AdamW.

Sources: Jordan et al., "Muon: an optimizer for hidden layers in neural networks", 2024,
kellerjordan.github.io/posts/muon; for the factor by which a learning rate of AdamW's serves both, Liu et al., "Muon is
scalable for LLM training", 2025, arXiv 2502.16982, section 2.2.
"""

import math
from typing import Any

import torch
from torch import Tensor, nn

_LAYERS = (nn.Linear, nn.modules.conv._ConvNd, nn.MultiheadAttention)
_NARROW = 16  # inputs or outputs; what has fewer has few directions, as the first and last layers of images often do
_MOMENTUM = 0.95
_COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # of the quintic: steep at 0, so that five steps are enough
_STEPS = 5
_SCALE = 0.2  # root mean square of AdamW's usual step, in units of the learning rate


def hidden_weights(module: nn.Module) -> set[Tensor]:
    """Return the weights of a module that Muon may move.

    They are weights of linear layers, convolutions and attention whose first two dimensions are 16 at least. Tables,
    embeddings and codebooks are none, even where they are matrices or tied to a layer, nor is what
    `torch.nn.utils.parametrize` holds.
    """
    owned: dict[bool, set[Tensor]] = {True: set(), False: set()}
    for found in module.modules():
        owned[isinstance(found, _LAYERS)] |= set(found.parameters(recurse=False))
    layers = owned[True] - owned[False]
    return {weight for weight in layers if weight.ndim > 1 and min(weight.shape[:2]) >= _NARROW}


def orthogonalised(matrix: Tensor) -> Tensor:
    """Return roughly U V' of a matrix U S V', by five steps of a Newton-Schulz iteration.

    torch.optim.Muon's works in bfloat16, which few CPUs multiply natively; this one does on GPUs alone.

    Args:
        matrix: (rows, columns) float32.

    Returns:
        (rows, columns) float32. Singular values that were 0.01 of the matrix's Frobenius norm or more lie between 0.68
        and 1.13; smaller ones end below.
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

    A weight W with gradient G, as a matrix of its first dimension by all else, at learning rate r:

        M <- 0.95 M + 0.05 G,   W <- (1 - r decay) W - 0.2 r sqrt(max(rows, columns)) orthogonalised(0.05 G + 0.95 M)

    so that the step has the root mean square that AdamW's usually has at the same rate. The state of such a weight is
    M, `momentum_buffer`.

    Args:
        groups: as of any optimizer of torch, each with a key `muon`, whether Muon moves its parameters.
        settings: of AdamW.
    """

    def __init__(self, groups: list[dict[str, Any]], **settings: Any) -> None:
        super().__init__(groups, **settings)
        # A loss scaler leaves it to fused optimizers to skip a step that overflowed; Muon's half would not.
        self._step_supports_amp_scaling = False

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Take a step. The gradients of what Muon moves are gone afterwards; a closure is not supported."""
        if closure is not None:
            raise ValueError("Muon takes no closure: call backward before the step")
        for group in self.param_groups:
            for weight in group["params"] if group["muon"] else ():
                if weight.grad is not None:
                    self._move(weight, weight.grad, group["lr"], group["weight_decay"])
                    weight.grad = None  # AdamW leaves out what has none
        super().step()

    def _move(self, weight: Tensor, gradient: Tensor, rate: float, decay: float) -> None:
        state = self.state[weight]
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = torch.zeros_like(weight)
        momentum = state["momentum_buffer"].lerp_(gradient, 1 - _MOMENTUM)
        direction = orthogonalised(gradient.lerp(momentum, _MOMENTUM).flatten(1))
        weight.mul_(1 - rate * decay)
        step = _SCALE * rate * math.sqrt(max(direction.shape))
        weight.sub_(direction.view_as(weight), alpha=step)
