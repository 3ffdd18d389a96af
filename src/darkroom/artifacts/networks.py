"""The files of a network: its configuration and its weights."""

import json
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor, nn

from darkroom.artifacts.atomic import write_bytes, write_json
from darkroom.artifacts.manifest import ArtifactError

CONFIG = "config.json"
WEIGHTS = "model.safetensors"
LATER = {"later": True}  # of a field that was added later: at its default it is not saved, so that bytes stay


def write_network(folder: Path, config: Mapping[str, Any], state: Mapping[str, Tensor]) -> None:
    """Write `config.json` and `model.safetensors`; equal networks give equal bytes."""
    write_json(folder / CONFIG, dict(config))
    write_bytes(folder / WEIGHTS, save({name: value.detach().cpu().contiguous() for name, value in state.items()}))


class SavedNetwork(nn.Module):
    """A network that is saved as a folder: its configuration, which builds an untrained one, and its weights.

    config: a dataclass or a mapping, of JSON values.
    shape: the class of `config`, whose JSON lists become tuples; None: it is a mapping.
    made_by: the name of the network and the stage that writes it, for messages.
    """

    config: Any
    shape: ClassVar[type | None] = None
    made_by: ClassVar[tuple[str, str]]

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Return an untrained network."""
        if cls.shape is None:
            return cls(**config)
        tuples = {name: tuple(value) for name, value in config.items() if isinstance(value, list)}
        return cls(cls.shape(**config | tuples))

    @property
    def saved(self) -> nn.Module:
        """The module whose weights are saved, under its own names."""
        return self

    def save_pretrained(self, folder: Path) -> None:
        """Write `config.json` and `model.safetensors`; equal networks give equal bytes."""
        folder.mkdir(parents=True, exist_ok=True)
        config = dict(self.config) if isinstance(self.config, Mapping) else asdict(self.config)
        for field in () if isinstance(self.config, Mapping) else fields(self.config):
            if "later" in field.metadata and config[field.name] == field.default:
                del config[field.name]
        write_network(folder, config, self.saved.state_dict())

    @classmethod
    def from_pretrained(cls, folder: Path) -> Self:
        """Return the network that `save_pretrained` wrote, on the CPU, in evaluation mode.

        The state of the global random generators stays as it is.

        Raises:
            ArtifactError: a file is missing or damaged, or the files do not match; the message names it.
        """
        name, stage = cls.made_by
        try:
            config, weights = json.loads((folder / CONFIG).read_text()), load_file(folder / WEIGHTS)
            with torch.random.fork_rng(devices=[]):
                network = cls.from_config(config)
            network.saved.load_state_dict(weights)
        except FileNotFoundError as error:
            raise ArtifactError(f"{folder} holds no {name} ({error}): run {stage} (`dvc repro`).") from error
        except (ValueError, TypeError, KeyError, SafetensorError, RuntimeError) as error:
            reason = " ".join(str(error).split())
            raise ArtifactError(f"{folder} is damaged ({reason}): restore it with `dvc checkout {folder}`.") from error
        return network.eval()
