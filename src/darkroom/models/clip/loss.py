"""The contrastive loss of images and captions over a batch."""

import torch
from torch import Tensor

LARGEST = 100.0  # maximum scale of the cosines: Radford et al., section 2.5


def contrastive_losses(image: Tensor, text: Tensor, scale: Tensor, captions: Tensor | None = None) -> Tensor:
    """Return the loss of each pair of a batch, (N,).

    L_i = - 1/2 [ sum_j q_ij log softmax_j(s x_i . y_j) + sum_j q_ij log softmax_j(s x_j . y_i) ], with q_ij = 1 where
    i = j: Radford et al., "Learning transferable visual models from natural language supervision", 2021, figure 3.
    Where captions are given, q_ij = 1/n_i for the n_i pairs whose caption equals that of pair i, which are no negatives
    of each other: Yang et al., "Unified contrastive learning in image-text-label space", 2022, 2204.03610, equation 3.

    Args:
        image: x, of length 1, (N, D).
        text: y, of length 1, (N, D).
        scale: s, the inverse temperature.
        captions: a number for each pair, the same for equal captions, (N,); None: all differ.
    """
    logits = scale * image @ text.T  # (N, N), a row an image
    if captions is None:
        targets = torch.eye(len(logits), dtype=logits.dtype, device=logits.device)
    else:
        equal = (captions[:, None] == captions).to(logits.dtype)
        targets = equal / equal.sum(dim=1, keepdim=True)
    found = [-(targets * each.log_softmax(dim=1)).sum(dim=1) for each in (logits, logits.T)]
    return (found[0] + found[1]) / 2
