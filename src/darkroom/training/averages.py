"""Averaged weights, and weights saved every `save_every` images."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors.torch import load_file
from safetensors.torch import save as serialise
from torch import Tensor, nn

from darkroom.artifacts.atomic import atomic_folder, write_bytes
from darkroom.artifacts.manifest import ArtifactError, file_hashes, open_artifact, write_manifest
from darkroom.errors import DarkroomError

State = dict[str, dict[str, Tensor]]  # module to tensors by name
_KEPT = "kept_weights"


class Average:
    """The averaged weights of named modules: w_avg <- d w_avg + (1 - d) w, d = decay(k), after optimizer step k.

    Buffers are copied. `state` is what a checkpoint holds.
    """

    def __init__(self, modules: Mapping[str, nn.Module], decay: Callable[[int], float]) -> None:
        self._modules, self._decay = modules, decay
        self.state = state_of(modules)
        # Paired once: listing a model's state at each step takes longer than averaging it. A shared weight has several
        # names. Buffers are looked up each time, since a module may replace their tensors.
        self._averages: list[Tensor] = []
        self._weights: list[Tensor] = []
        self._copied: dict[str, list[str]] = {}
        for name, module in modules.items():
            named = dict(module.named_parameters(remove_duplicate=False))
            averaged = [key for key in self.state[name] if key in named]
            self._copied[name] = sorted(self.state[name].keys() - named.keys())
            self._averages += [self.state[name][key] for key in averaged]
            self._weights += [named[key].detach() for key in averaged]

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Update the averages with the weights after optimizer step `step`, counted from 0."""
        if (decay := self._decay(step)) < 1:
            torch._foreach_lerp_(self._averages, self._weights, 1 - decay)
        for name, keys in self._copied.items():
            for key in keys:
                self.state[name][key].copy_(self._modules[name].get_buffer(key))

    def copy(self) -> State:
        """Return the current averages."""
        return {name: {key: value.clone() for key, value in state.items()} for name, state in self.state.items()}

    @contextmanager
    def applied(self, weights: State | None = None) -> Iterator[None]:
        """Give the modules the averaged weights, or other `weights`, inside the block; restore their own after it."""
        own = state_of(self._modules)
        self._load(self.state if weights is None else weights)
        try:
            yield
        finally:
            self._load(own)

    def _load(self, state: State) -> None:
        torch.clear_autocast_cache()  # autocast caches casts of the earlier weights
        for name, module in self._modules.items():
            module.load_state_dict(state[name])


def state_of(modules: Mapping[str, nn.Module]) -> State:
    """Return a copy of the weights and buffers of named modules."""
    return {
        name: {key: value.detach().clone() for key, value in module.state_dict().items()}
        for name, module in modules.items()
    }


def constant_decay(decay: float, warmup: bool = True, start: int = 0, every: int = 1) -> Callable[[int], float]:
    """Return the decay of optimizer step k, counted from 0.

    Args:
        decay: d.
        warmup: min(d, (1 + n) / (10 + n)) at update n of the average, so that the initial weights are soon forgotten;
            otherwise d from the first one on, as DiT's published weights were averaged.
        start: steps in which the average is the weights themselves.
        every: steps from one update of the average to the next; in between it stays, a decay of 1.
    """

    def of_step(step: int) -> float:
        if step < start:
            return 0.0
        update, between = divmod(step - start, every)
        if between:
            return 1.0
        return min(decay, (1 + update) / (10 + update)) if warmup else decay

    return of_step


# --------------------------------------------------------------------------------------------------------------------
# Weights kept on the way, every `save_every` images: raw and averaged, in `STATE/kept/images-XXXXXXXXXXXX/`


def _kept(state_folder: Path, images: int) -> Path:
    return state_folder / "kept" / f"images-{images:012d}"


def kept_folder(model: Path, images: int) -> Path:
    """Return the folder of a model's weights at a number of images seen, with raw ones in `raw/`."""
    return model / "checkpoints" / f"images-{images:012d}"


def write_kept(state_folder: Path, images: int, weights: Mapping[str, State]) -> None:
    """Write a set of weights atomically: RAW_OR_AVERAGED/MODULE.safetensors.

    Call this before the checkpoint of the same image is saved: a training that is killed between the two repeats the
    step and writes the same bytes again.
    """
    with atomic_folder(_kept(state_folder, images)) as temporary:
        for name, state in weights.items():
            (temporary / name).mkdir()
            for module, tensors in state.items():
                data = serialise({key: value.cpu().contiguous() for key, value in tensors.items()})
                write_bytes(temporary / name / f"{module}.safetensors", data)
        write_manifest(temporary, _KEPT, images=images, files=file_hashes(temporary))


def read_kept(state_folder: Path, images: int) -> dict[str, State]:
    """Return what `write_kept` wrote, on the CPU.

    Raises:
        DarkroomError: it is missing or damaged; only training again restores it.
    """
    folder = _kept(state_folder, images)
    try:
        open_artifact(folder, _KEPT)
    except ArtifactError as error:
        raise DarkroomError(
            f"the weights kept in {folder} are missing or damaged: remove {state_folder} and train again."
        ) from error
    return {
        group.name: {file.stem: load_file(file) for file in sorted(group.glob("*.safetensors"))}
        for group in sorted(path for path in folder.iterdir() if path.is_dir())
    }
