"""The files of a network: its configuration and its weights."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor, nn

from darkroom.artifacts.atomic import write_bytes, write_json
from darkroom.artifacts.manifest import ArtifactError

Network = TypeVar("Network", bound=nn.Module)

CONFIG = "config.json"
WEIGHTS = "model.safetensors"


def write_network(folder: Path, config: Mapping[str, Any], state: Mapping[str, Tensor]) -> None:
    """Write `config.json` and `model.safetensors`; equal networks give equal bytes."""
    write_json(folder / CONFIG, dict(config))
    write_bytes(folder / WEIGHTS, save({name: value.detach().cpu().contiguous() for name, value in state.items()}))


def open_network(folder: Path, build: Callable[[dict[str, Any]], Network], what: str, stage: str) -> Network:
    """Return the network that `write_network` wrote, on the CPU, in evaluation mode.

    Args:
        folder: the folder of the network.
        build: makes an untrained network from its configuration. The state of the global random generators is restored
            afterwards.
        what: the kind of network, for messages.
        stage: the stage that makes it, for messages.

    Raises:
        ArtifactError: a file is missing or damaged, or the files do not fit each other; the message names it.
    """
    try:
        config, weights = read_network(folder)
        with torch.random.fork_rng(devices=[]):
            network = build(config)
        network.load_state_dict(weights)
    except FileNotFoundError as error:
        raise ArtifactError(f"{folder} holds no {what} ({error}): run {stage} (`dvc repro`).") from error
    except (ValueError, TypeError, KeyError, SafetensorError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise ArtifactError(f"{folder} is damaged ({reason}): restore it with `dvc checkout {folder}`.") from error
    return network.eval()


def read_network(folder: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return the configuration and the tensors, on the CPU, that `write_network` wrote.

    Raises:
        FileNotFoundError: one of the files is missing.
        ValueError: the configuration is not JSON.
        SafetensorError: the weights are damaged.
    """
    config: dict[str, Any] = json.loads((folder / CONFIG).read_text())
    return config, load_file(folder / WEIGHTS)
