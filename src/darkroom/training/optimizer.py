"""AdamW, with weight decay on matrices only."""

import torch
from torch import Tensor, nn

from darkroom.schemas.training import Training


def parameter_names(module: nn.Module) -> dict[Tensor, str]:
    """Return the name of each trained parameter of a module."""
    return {parameter: name for name, parameter in module.named_parameters() if parameter.requires_grad}


def adamw(module: nn.Module, settings: Training) -> torch.optim.AdamW:
    """Return AdamW (Loshchilov and Hutter, 2019) over a module's parameters.

    Weight decay acts on tensors with two dimensions or more that are not embeddings: not on norms and biases.
    """
    tables = {id(found.weight) for found in module.modules() if isinstance(found, nn.Embedding)}
    parameters = list(parameter_names(module))
    decayed = [parameter for parameter in parameters if parameter.ndim > 1 and id(parameter) not in tables]
    kept = {id(parameter) for parameter in decayed}
    groups = [
        {"params": decayed, "weight_decay": settings.weight_decay},
        {"params": [parameter for parameter in parameters if id(parameter) not in kept], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(
        [group for group in groups if group["params"]], lr=settings.learning_rate, betas=settings.betas, fused=True
    )
