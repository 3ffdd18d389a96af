"""AdamW, or Muon, with parameter groups: weight decay on matrices only, and rates of their own by parameter name."""

import difflib
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor, nn

from darkroom.errors import DarkroomError
from darkroom.params.training import Training
from darkroom.training.muon import Muon, hidden_weights
from darkroom.training.processes import put, whole

# Their parameters are not decayed, whatever their shape: tables and scales, not maps.
_UNDECAYED = (nn.Embedding, nn.EmbeddingBag, nn.LayerNorm, nn.RMSNorm, nn.GroupNorm, nn.modules.batchnorm._NormBase)


def parameter_names(module: nn.Module) -> dict[Tensor, str]:
    """Return the name of each trained parameter of a module."""
    return {parameter: name for name, parameter in module.named_parameters() if parameter.requires_grad}


def _match(path: str, settings: Training) -> int | None:
    """Return the number of the first of `settings.groups` whose glob takes the parameter MODULE/PARAMETER."""
    return next((number for number, group in enumerate(settings.groups) if fnmatchcase(path, group.match)), None)


def parameter_groups(module: nn.Module, settings: Training, name: str = "") -> list[dict[str, Any]]:
    """Return a module's trained parameters in the groups of an optimizer.

    Weight decay acts on tensors with two dimensions or more that are neither embeddings nor of a norm, and not on
    biases; a group of `settings.groups` with a `weight_decay` of its own has it on all that it takes. Each group that
    is returned carries `rate`, a factor of the learning rate, and `schedule`, or None for that of the settings, which
    `train_state.set_rates` reads, and `muon`, into how many matrices Muon cuts each weight, or 0: AdamW moves it. The
    groups follow from the settings and the names alone, so an optimizer that is built again has the same ones.

    Args:
        module: its parameters are optimized.
        settings: rates, decay and groups.
        name: the module's, for the globs over MODULE/PARAMETER.
    """
    undecayed = {
        id(parameter)
        for found in module.modules()
        if isinstance(found, _UNDECAYED)
        for parameter in found.parameters(recurse=False)
    }
    hidden = hidden_weights(module)
    made: dict[tuple[int, bool, int], dict[str, Any]] = {}
    for parameter, key in parameter_names(module).items():
        number = _match(f"{name}/{key}", settings)
        group = None if number is None else settings.groups[number]
        matrix = parameter.ndim > 1 and id(parameter) not in undecayed and "bias" not in key.rpartition(".")[2]
        decay = settings.weight_decay if matrix else 0.0
        if group is not None and group.weight_decay is not None:
            decay = group.weight_decay
        own = None if group is None else group.optimizer
        muon = 0
        if (own or settings.optimizer) == "muon" and parameter in hidden:
            muon = hidden[parameter] if settings.muon_chunks else 1
        # Numbered from 0; the parameters that no group takes come first, matrices before the rest.
        place = (-1 if number is None else number, not matrix, muon)
        made.setdefault(
            place,
            {
                "params": [],
                "weight_decay": decay,
                "rate": 1.0 if group is None else group.rate,
                "schedule": None if group is None else group.schedule,
                "muon": muon,
            },
        )["params"].append(parameter)
    return [made[place] for place in sorted(made)]


def build_optimizer(
    module: nn.Module, settings: Training, name: str = "", betas: tuple[float, float] | None = None
) -> torch.optim.AdamW:
    """Return AdamW (Loshchilov and Hutter, 2019) over a module's parameter groups, or Muon where one of them names it.

    Args:
        module: its parameters are optimized.
        settings: rates, decay and groups; of `precision` bf16 Muon computes in bfloat16.
        name: the module's, for the globs over MODULE/PARAMETER.
        betas: of AdamW; other ones than the settings'.
    """
    groups = parameter_groups(module, settings, name)
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


def check_groups(modules: Mapping[str, nn.Module], settings: Training) -> None:
    """Check that each of `settings.groups` takes a trained parameter of the modules, and one that its optimizer moves.

    Raises:
        DarkroomError: a glob matches no parameter, or only such as earlier groups take, or none that Muon may move;
            names it, and the nearest names.
    """
    paths = [f"{name}/{key}" for name, module in modules.items() for key in parameter_names(module).values()]
    taken = {_match(path, settings) for path in paths}
    hidden: set[int | None] = set()
    for name, module in modules.items():
        names, weights = parameter_names(module), hidden_weights(module)
        hidden |= {_match(f"{name}/{names[weight]}", settings) for weight in weights.keys() & names.keys()}
    for number, group in enumerate(settings.groups):
        if number in taken:
            if group.optimizer == "muon" and number not in hidden:
                raise DarkroomError(
                    f"groups: `optimizer: muon` of `{group.match}` matches no weight of 16 or more inputs and outputs: "
                    "omit it."
                )
            continue
        if any(fnmatchcase(path, group.match) for path in paths):
            raise DarkroomError(
                f"groups: all that `{group.match}` matches is taken by the groups above it: move it up, or take it out."
            )
        near = difflib.get_close_matches(group.match, paths, n=3, cutoff=0.0)
        raise DarkroomError(
            f"groups: `{group.match}` matches no parameter of {', '.join(modules)}; the nearest are {', '.join(near)}."
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
    """Give an optimizer the state that `optimizer_tensors` returned."""
    parameters = {name: parameter for parameter, name in names.items()}
    for path, value in tensors.items():
        name, _, key = path.rpartition("/")
        parameter = parameters[name]
        if value.shape == parameter.shape:
            optimizer.state[parameter][key] = torch.zeros_like(parameter, dtype=value.dtype)
            put(optimizer.state[parameter][key], value)
        else:  # the number of steps, which the fused kernels read on the device, too
            optimizer.state[parameter][key] = value.to(parameter.device)
