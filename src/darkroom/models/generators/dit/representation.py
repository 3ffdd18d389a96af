"""Losses of what a diffusion transformer's tokens say of its images, beside that of its prediction."""

import torch
from torch import Tensor, distributed, nn
from torch.nn import functional

from darkroom.device import in_float32, of_all_processes, process_count
from darkroom.training.loop import seeded

_BETA = 0.05  # error at which the alignment turns from squared to linear


def dispersive(tokens: Tensor, tau: float) -> Tensor:
    """Return log mean_{i,j} exp(-|z_i - z_j|² / (D τ)) of tokens (B, N, W), a scalar, float32; D = N W.

    z_i: all tokens of image i. The mean is over all pairs of the images of all processes, i = j among them.
    Source: Wang and He, "Diffuse and disperse", 2025, arXiv 2506.09027.
    """
    world = process_count()
    with in_float32(tokens.device):
        z = tokens.float().flatten(1)  # (B, D)
        if world > 1:  # those of the other processes are constants here
            pieces = list(of_all_processes(z.detach()).chunk(world))
            pieces[distributed.get_rank()] = z
            z = torch.cat(pieces)
        z = z - z.detach().mean(dim=0)  # distances stay, and the difference below loses less
        gram = z @ z.T / z.shape[1]
        squares = gram.diagonal()
        loss = (-(squares[:, None] + squares - 2 * gram) / tau).exp().mean().log()
    # The mean of the gradients over the processes is then that of the loss.
    return loss.detach() + world * (loss - loss.detach()) if world > 1 else loss


def projector(width: int, seed: int) -> nn.Module:
    """Return the untrained network that maps tokens of a block to those of a later one; it is not saved."""
    with seeded(seed):
        return nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width))


def alignment(projected: Tensor, target: Tensor) -> Tensor:
    """Return the smooth L1 distance of tokens (B, N, W) from a teacher's, the mean over elements, a scalar, float32.

    d² / (2 β) where |d| < β, else |d| - β / 2, β = 0.05.
    Source: Jiang et al., "No other representation component is needed", 2025, arXiv 2505.02831 (SRA).
    """
    return functional.smooth_l1_loss(projected.float(), target.float(), beta=_BETA)
