"""The files of a network: what it is built from, and its weights."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save
from torch import Tensor

from darkroom.artifacts.atomic import write_bytes, write_json

CONFIG = "config.json"
WEIGHTS = "model.safetensors"


def write_network(folder: Path, config: Mapping[str, Any], state: Mapping[str, Tensor]) -> None:
    """Write `config.json` and `model.safetensors`; equal networks give equal bytes."""
    write_json(folder / CONFIG, dict(config))
    write_bytes(folder / WEIGHTS, save({name: value.detach().cpu().contiguous() for name, value in state.items()}))


def read_network(folder: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return the configuration and the tensors, on the CPU, that `write_network` wrote.

    Raises:
        FileNotFoundError: one of the files is missing.
        ValueError: the configuration is no JSON.
        SafetensorError: the weights are damaged.
    """
    config: dict[str, Any] = json.loads((folder / CONFIG).read_text())
    return config, load_file(folder / WEIGHTS)
