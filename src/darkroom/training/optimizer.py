"""AdamW, or Muon, with weight decay on matrices only."""

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from darkroom.params.training import Training
from darkroom.training.muon import Muon, hidden_weights
from darkroom.training.processes import put, whole

# Their parameters are not decayed, whatever their shape: tables and scales, not maps.
_UNDECAYED = (nn.Embedding, nn.EmbeddingBag, nn.LayerNorm, nn.RMSNorm, nn.GroupNorm, nn.modules.batchnorm._NormBase)


def parameter_names(module: nn.Module) -> dict[Tensor, str]:
    """Return the name of each trained parameter of a module."""
    return {parameter: name for name, parameter in module.named_parameters() if parameter.requires_grad}


def parameter_groups(module: nn.Module, settings: Training) -> list[dict[str, Any]]:
    """Return a module's trained parameters in the groups of an optimizer.

    Weight decay acts on tensors with two dimensions or more that are neither embeddings nor of a norm, and not on
    biases. Each group carries `muon`, the number of matrices that Muon cuts each weight into, or 0: AdamW updates
    it. The groups depend only on the settings and the names, so a rebuilt optimizer has the same ones.
    """
    undecayed = {
        id(parameter)
        for layer in module.modules()
        if isinstance(layer, _UNDECAYED)
        for parameter in layer.parameters(recurse=False)
    }
    hidden = hidden_weights(module) if settings.optimizer == "muon" else {}
    groups: dict[tuple[bool, int], dict[str, Any]] = {}  # matrices first
    for parameter, key in parameter_names(module).items():
        matrix = parameter.ndim > 1 and id(parameter) not in undecayed and "bias" not in key.rpartition(".")[2]
        muon = hidden.get(parameter, 0) if settings.muon_chunks else int(parameter in hidden)
        group = {"params": [], "weight_decay": settings.weight_decay if matrix else 0.0, "muon": muon}
        groups.setdefault((not matrix, muon), group)["params"].append(parameter)
    return [groups[place] for place in sorted(groups)]


def build_optimizer(
    module: nn.Module, settings: Training, betas: tuple[float, float] | None = None
) -> torch.optim.AdamW:
    """Return AdamW (Loshchilov and Hutter, 2019) over a module's parameter groups, or Muon if it updates one of them.

    Muon computes in bfloat16 if `precision` is bf16. `betas` are AdamW's; None: those of the settings.
    """
    groups = parameter_groups(module, settings)
    adamw: dict[str, Any] = {"lr": settings.learning_rate, "betas": betas or settings.betas, "eps": settings.eps}
    if any(group["muon"] for group in groups):
        return Muon(groups, bfloat16=settings.precision == "bf16", fused=True, **adamw)
    return torch.optim.AdamW(groups, fused=True, **adamw)


def state_bytes(groups: Iterable[Mapping[str, Any]]) -> int:
    """Return the bytes of an optimizer's state: Muon's momentum, or AdamW's two moments and a float32 counter."""
    return sum(
        parameter.nbytes if group["muon"] else 2 * parameter.nbytes + 4
        for group in groups
        for parameter in group["params"]
    )


def optimizer_tensors(optimizer: torch.optim.Optimizer, names: Mapping[Tensor, str]) -> dict[str, Tensor]:
    """Return an optimizer's state as tensors under `PARAMETER/KEY`: by name, never by order."""
    return {
        f"{names[parameter]}/{key}": whole(torch.as_tensor(value))
        for parameter, state in optimizer.state.items()
        for key, value in state.items()
    }


def load_optimizer(
    optimizer: torch.optim.Optimizer, names: Mapping[Tensor, str], tensors: Mapping[str, Tensor]
) -> None:
    """Load the state that `optimizer_tensors` returned into an optimizer."""
    parameters = {name: parameter for parameter, name in names.items()}
    for path, value in tensors.items():
        name, _, key = path.rpartition("/")
        parameter = parameters[name]
        if value.shape == parameter.shape:
            optimizer.state[parameter][key] = torch.zeros_like(parameter, dtype=value.dtype)
            put(optimizer.state[parameter][key], value)
        else:  # the number of steps, which the fused kernels read on the device, too
            optimizer.state[parameter][key] = value.to(parameter.device)
