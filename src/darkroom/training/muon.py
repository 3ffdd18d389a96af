"""Muon: the momentum of a hidden layer's weight matrix, orthogonalised. All other parameters move by AdamW.

Sources: Jordan et al., "Muon: an optimizer for hidden layers in neural networks", 2024,
kellerjordan.github.io/posts/muon; for the factor that lets both use AdamW's learning rate, Liu et al., "Muon is
scalable for LLM training", 2025, arXiv 2502.16982, section 2.2; for the polynomials, Amsel et al., "The Polar Express",
2025, arXiv 2505.16932, algorithm 1.
"""

import math
from typing import Any

import torch
from torch import Tensor, nn

_LAYERS = (nn.Linear, nn.modules.conv._ConvNd, nn.MultiheadAttention)
_NARROW = 16  # inputs or outputs; narrower layers, often the first and last ones for images, have few directions
_MOMENTUM = 0.95
# a, b, c of the quintics a x + b x^3 + c x^5 of the steps: each is nearest to 1 on the interval where the one before
# ends, which is [0.003, 1] at first. All but the last are of x / 1.02: values up to 2 % beyond an interval, as rounding
# makes them, stay bounded.
_QUINTICS = (
    (8.2193, -23.3375, 16.6266),
    (3.9641, -2.8377, 0.5158),
    (3.4368, -2.4752, 0.4762),
    (2.4901, -1.8343, 0.4368),
)
_LONG = 2  # columns per row from which the iteration uses the Gram matrix of the rows
# Elements of a stack of weights that are orthogonalised together: to fit a core's cache, or to fill a GPU.
_STACKED, _STACKED_ON_GPU = 2**18, 2**26
_SCALE = 0.2  # root mean square of AdamW's usual step, in units of the learning rate


def hidden_weights(module: nn.Module) -> dict[Tensor, int]:
    """Return the weights of a module that Muon can update, and the number of matrices stacked in each.

    They are weights of linear layers, convolutions and attention whose first two dimensions are at least 16. Tables,
    embeddings and codebooks are excluded, even if they are matrices or tied to a layer, and so are weights under
    `torch.nn.utils.parametrize`. A layer with several matrices has `chunks` (`darkroom.models.fused`).
    """
    owned: dict[bool, dict[Tensor, int]] = {True: {}, False: {}}
    for layer in module.modules():
        for name, parameter in layer.named_parameters(recurse=False):
            chunks = 3 if name == "in_proj_weight" else getattr(layer, "chunks", 1)  # the former is attention's
            owned[isinstance(layer, _LAYERS)][parameter] = chunks
    return {
        weight: chunks
        for weight, chunks in owned[True].items()
        if weight not in owned[False] and weight.ndim > 1 and min(weight.shape[:2]) >= _NARROW
    }


def orthogonalised(matrices: Tensor, bfloat16: bool = False) -> Tensor:
    """Return roughly U V' of each matrix U S V', by four steps of a Newton-Schulz iteration.

    It starts with X over the root of the Frobenius norm of X X', which no singular value exceeds, and which is nearer
    to the largest one than the Frobenius norm of X.

    Args:
        matrices: (count, rows, columns) float32.
        bfloat16: compute in it. Rounding then adds components in directions that a low-rank matrix lacks.

    Returns:
        (count, rows, columns) float32. Singular values that were 0.003 of that root or more lie between 0.76 and 1.2,
        with an error of about 0.02 in bfloat16; smaller ones end below.
    """
    tall = matrices.shape[1] > matrices.shape[2]
    x = matrices.mT if tall else matrices
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)
    x = x.bfloat16() if bfloat16 else x
    gram = x @ x.mT
    bound = gram.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)
    x, gram = x / bound.sqrt(), gram / bound
    if not bfloat16 and x.shape[2] >= _LONG * x.shape[1]:
        x = _polynomial(gram) @ x
    else:
        for step, quintic in enumerate(_QUINTICS):
            if step:
                gram = x @ x.mT
            x = torch.baddbmm(x, _even(gram, quintic), x, beta=quintic[0])
    return (x.mT if tall else x).to(matrices.dtype)


def _polynomial(gram: Tensor) -> Tensor:
    """Return P such that P X is X after all steps, from X X' alone: a small matrix if X is long.

    A step makes F X of X and F G F of G = X X', with F = a + b G + c G^2. Each step amplifies rounding in G: for
    singular values down to 1e-5, float32 leaves three digits, and bfloat16 would leave none.
    """
    product = factor = _factor(gram, _QUINTICS[0])
    for quintic in _QUINTICS[1:]:
        gram = factor @ gram @ factor
        factor = _factor(gram, quintic)
        product = factor @ product
    return product


def _factor(gram: Tensor, quintic: tuple[float, float, float]) -> Tensor:
    factor = _even(gram, quintic)
    factor.diagonal(dim1=1, dim2=2).add_(quintic[0])
    return factor


def _even(gram: Tensor, quintic: tuple[float, float, float]) -> Tensor:
    """Return b G + c G^2."""
    _, third, fifth = quintic
    return torch.baddbmm(gram, gram, gram, beta=third, alpha=fifth)


def _stacks(weights: list[Tensor]) -> list[list[Tensor]]:
    """Return the weights that have a gradient, grouped by shape, in stacks of a suitable size."""
    alike: dict[torch.Size, list[Tensor]] = {}
    for weight in weights:
        if weight.grad is not None:
            alike.setdefault(weight.shape, []).append(weight)
    return [
        group[start : start + count]
        for group in alike.values()
        for count in [max(1, (_STACKED_ON_GPU if group[0].is_cuda else _STACKED) // group[0].numel())]
        for start in range(0, len(group), count)
    ]


class Muon(torch.optim.AdamW):
    """Muon for the groups that set `muon`, AdamW for the others, in one optimizer with one state.

    A weight W with gradient G, as a matrix of its first dimension by all else, at learning rate r:

        M <- 0.95 M + 0.05 G,   W <- (1 - r decay) W - 0.2 r sqrt(max(rows, columns)) orthogonalised(0.05 G + 0.95 M)

    so that the step has the root mean square that AdamW's usually has at the same rate. The state of such a weight is
    M, `momentum_buffer`. If a weight is cut into several matrices, such as queries, keys and values, each is updated
    separately (arXiv 2608.02502, 2026).

    Args:
        groups: parameter groups as for any torch optimizer, each with a key `muon`: the number of stacked matrices that
            each parameter is cut into, or 0: AdamW updates them.
        bfloat16: orthogonalise in bfloat16, as GPUs always do.
        settings: of AdamW.
    """

    def __init__(self, groups: list[dict[str, Any]], bfloat16: bool = False, **settings: Any) -> None:
        super().__init__(groups, **settings)
        self._bfloat16 = bfloat16
        # A loss scaler leaves it to fused optimizers to skip a step that overflowed; Muon's half would not.
        self._step_supports_amp_scaling = False

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Take a step. It consumes the gradients of Muon's weights; closures are not supported."""
        if closure is not None:
            raise ValueError("Muon does not support closures: call backward before the step")
        for group in self.param_groups:
            for weights in _stacks(group["params"]) if group["muon"] else ():
                self._move(weights, group["muon"], group["lr"], group["weight_decay"])
        super().step()

    def _move(self, weights: list[Tensor], chunks: int, rate: float, decay: float) -> None:
        directions = torch.stack(self._directions(weights)).flatten(2)
        apart = directions.unflatten(1, (chunks, -1)).flatten(0, 1)
        matrices = orthogonalised(apart, bfloat16=self._bfloat16 or apart.is_cuda)
        step = _SCALE * rate * math.sqrt(max(matrices.shape[1:]))
        torch._foreach_mul_(weights, 1 - rate * decay)
        torch._foreach_sub_(weights, list(matrices.reshape(len(weights), *weights[0].shape)), alpha=step)

    def _directions(self, weights: list[Tensor]) -> list[Tensor]:
        gradients, momenta = list[Tensor](), list[Tensor]()
        for weight in weights:
            state = self.state[weight]
            if "momentum_buffer" not in state:
                state["momentum_buffer"] = torch.zeros_like(weight)
            momenta.append(state["momentum_buffer"])
            assert weight.grad is not None
            gradients.append(weight.grad)
            weight.grad = None  # AdamW skips weights without one
        torch._foreach_lerp_(momenta, gradients, 1 - _MOMENTUM)
        return list(torch._foreach_lerp(gradients, momenta, _MOMENTUM))
