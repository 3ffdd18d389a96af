"""Averages of weights over a training, and the average of any width after it.

A training keeps one average with a constant decay and, with `ema_profiles`, one for each width of a power-function
profile (Karras et al., 2024, arXiv 2312.02696, section 3). Snapshots of the latter rebuild any other width afterwards.

The power-function average at time t weighs the weights at time s <= t by p(s) = (γ + 1) s^γ / t^(γ + 1). Its width
sigma_rel is the standard deviation of p as a fraction of t: it says the same of a short training and a long one. Times
may be counted in optimizer steps or in images: only their ratios matter.
"""

import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from safetensors.torch import load_file
from safetensors.torch import save as serialise
from torch import Tensor, nn

from darkroom.artifacts.atomic import atomic_folder, write_bytes
from darkroom.artifacts.manifest import (
    NAME,
    ArtifactError,
    check_file,
    file_hashes,
    open_artifact,
    read_manifest,
    write_manifest,
)
from darkroom.errors import DarkroomError
from darkroom.params.training import Training

State = dict[str, dict[str, Tensor]]  # module to tensors by name
Numbers = NDArray[np.float64]
_SNAPSHOT, _PROFILES, _KEPT = "profiles_snapshot", "profiles", "kept_weights"

# || found - wanted || / || wanted ||. Where the noise of the optimizer steps is independent this is the error of the
# rebuilt weights as a fraction of the noise that the wanted average itself leaves: at 0.1 a tenth of it.
MAX_RESIDUAL = 0.1
# Sum of the coefficients' sizes. Snapshots are float32, so the error that their rounding leaves is at most this many
# times 2^-24: at 1000 it is 6e-5 of a weight, an eighth of what float16 rounds away.
MAX_GAIN = 1000.0


class Average:
    """The averaged weights of named modules: w_avg <- d w_avg + (1 - d) w, d = decay(k), after optimizer step k.

    Buffers are copied. `state` is what a checkpoint holds.

    Args:
        modules: by name.
        decay: of optimizer step k, counted from 0: `constant_decay` or `power_decay`.
    """

    def __init__(self, modules: Mapping[str, nn.Module], decay: Callable[[int], float]) -> None:
        self._modules, self._decay = modules, decay
        self.state = state_of(modules)
        # Paired once: to list a model's state at each step takes longer than to average it. A shared weight has several
        # names. Buffers are looked up each time, since a module may put another tensor in their place.
        self._averages: list[Tensor] = []
        self._weights: list[Tensor] = []
        self._copied = copied_names(modules)
        for name, module in modules.items():
            named = dict(module.named_parameters(remove_duplicate=False))
            averaged = [key for key in self.state[name] if key not in self._copied[name]]
            self._averages += [self.state[name][key] for key in averaged]
            self._weights += [named[key].detach() for key in averaged]

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Take in the weights after optimizer step `step`, counted from 0."""
        if (decay := self._decay(step)) < 1:
            torch._foreach_lerp_(self._averages, self._weights, 1 - decay)
        for name, keys in self._copied.items():
            for key in keys:
                self.state[name][key].copy_(self._modules[name].get_buffer(key))

    def copy(self) -> State:
        """Return the averages of this moment."""
        return {name: {key: value.clone() for key, value in state.items()} for name, state in self.state.items()}

    @contextmanager
    def applied(self, other: State | None = None) -> Iterator[None]:
        """Give the modules the averaged weights, or others, inside the block, and their own back after it."""
        own = state_of(self._modules)
        self._load(self.state if other is None else other)
        try:
            yield
        finally:
            self._load(own)

    def _load(self, state: State) -> None:
        torch.clear_autocast_cache()  # autocast, where it is on, goes by the casts that it has made of other weights
        for name, module in self._modules.items():
            module.load_state_dict(state[name])


def state_of(modules: Mapping[str, nn.Module]) -> State:
    """Return a copy of the weights and buffers of named modules."""
    return {
        name: {key: value.detach().clone() for key, value in module.state_dict().items()}
        for name, module in modules.items()
    }


def copied_names(modules: Mapping[str, nn.Module]) -> dict[str, list[str]]:
    """Return, for each module, the names in its state that are copied and not averaged: its buffers."""
    return {
        name: sorted(module.state_dict().keys() - dict(module.named_parameters(remove_duplicate=False)).keys())
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


def power_decay(sigma_rel: float) -> Callable[[int], float]:
    """Return β = (1 - 1/t)^(γ + 1), t = k + 1, of step k counted from 0, for the profile of a relative width.

    After t steps the weights of step number n from 1 count (n^(γ + 1) - (n - 1)^(γ + 1)) / t^(γ + 1): the integral of p
    from n - 1 to n, without a remainder of the initial weights.
    """
    gamma = exponent(sigma_rel)
    return lambda step: (1 - 1 / (step + 1)) ** (gamma + 1)


def exponent(sigma_rel: float) -> float:
    """Return γ of the profile of relative width `sigma_rel`, in (0, 0.288): the positive root of a cubic.

    σ² = (γ + 1) / ((γ + 2)² (γ + 3)), the variance of p at t = 1, is γ³ + 7 γ² + (16 - σ⁻²) γ + 12 - σ⁻² = 0. Its
    coefficients change sign once there, so one root is positive, and the others have negative real parts.
    """
    inverse = sigma_rel**-2
    return float(np.roots([1.0, 7.0, 16.0 - inverse, 12.0 - inverse]).real.max())


# --------------------------------------------------------------------------------------------------------------------
# Snapshots


def snapshot_due(before_images: int, after_images: int, settings: Training) -> bool:
    """Return whether an optimizer step passed one of `ema_snapshots` evenly spread times, of which the end is last."""
    count, total = settings.ema_snapshots, settings.images
    return bool(settings.ema_profiles) and after_images * count // total > before_images * count // total


def snapshot_images(settings: Training) -> list[int]:
    """Return the images seen at each snapshot of a training: those for which `snapshot_due` holds, in order."""
    count, total, batch = settings.ema_snapshots, settings.images, settings.batch
    return sorted({-(-number * total // (count * batch)) * batch for number in range(1, count + 1)})


def write_snapshot(
    state_folder: Path, images: int, modules: Mapping[str, nn.Module], profiles: Mapping[float, Average]
) -> None:
    """Write the averages of all widths to `STATE/snapshots/images-XXXXXXXXXXXX/`, whole or not at all.

    To be called before the checkpoint of the same image is saved: a training that is killed between the two repeats the
    step and writes the same bytes again.
    """
    states = {f"{module}/{width!r}": each for width, kept in profiles.items() for module, each in kept.state.items()}
    widths = {repr(width): width for width in profiles}
    folder = _folder(state_folder, "snapshots", images)
    _write(folder, _SNAPSHOT, states, images=images, widths=widths, copied=copied_names(modules))


def _folder(state_folder: Path, kind: str, images: int) -> Path:
    return state_folder / kind / f"images-{images:012d}"


def _write(folder: Path, kind: str, files: Mapping[str, Mapping[str, Tensor]], **facts: Any) -> None:
    """Write tensors by the names of files, FOLDER/NAME without their ending, with a manifest."""
    with atomic_folder(folder) as temporary:
        for name, tensors in files.items():
            path = temporary / f"{name}.safetensors"
            path.parent.mkdir(exist_ok=True)
            write_bytes(path, serialise({key: value.cpu().contiguous() for key, value in tensors.items()}))
        write_manifest(temporary, kind, **facts, files=file_hashes(temporary))


def export_snapshots(state_folder: Path, module_name: str, out: Path, settings: Training) -> None:
    """Copy the snapshots of one module into a declared output, `out`: `images-N/WIDTH.safetensors` and a manifest.

    Without `ema_profiles` nothing is written, not even the folder.

    Raises:
        DarkroomError: a snapshot is missing or damaged, and cannot be made again without its part of the training.
    """
    if not settings.ema_profiles:
        return
    snapshots, widths = snapshot_images(settings), sorted(set(settings.ema_profiles))
    with atomic_folder(out) as temporary:
        hashes: dict[str, str] = {}
        copied: list[str] = []
        for source in (_folder(state_folder, "snapshots", images) for images in snapshots):
            try:
                manifest = read_manifest(source, _SNAPSHOT)
                for name in manifest["widths"]:
                    file, target = f"{module_name}/{name}.safetensors", f"{source.name}/{name}.safetensors"
                    (temporary / target).parent.mkdir(exist_ok=True)
                    if (source / file).is_file():
                        shutil.copyfile(source / file, temporary / target)
                    # The copy is checked: it covers what was read and what was written.
                    check_file(temporary / target, manifest["files"][file])
                    hashes[target] = manifest["files"][file]
            except ArtifactError as error:
                raise DarkroomError(
                    f"the snapshot {source} is missing or damaged: remove {state_folder} and train again."
                ) from error
            copied = manifest["copied"][module_name]
        write_manifest(temporary, _PROFILES, snapshots=snapshots, widths=widths, copied=copied, files=hashes)


# --------------------------------------------------------------------------------------------------------------------
# Weights kept on the way, every `keep_every` images: raw and averaged, in `STATE/kept/images-XXXXXXXXXXXX/`


def kept_folder(model: Path, images: int) -> Path:
    """Return where a model's folder has the weights of so many images seen, raw ones in `raw/` there."""
    return model / "checkpoints" / f"images-{images:012d}"


def write_kept(state_folder: Path, images: int, weights: Mapping[str, State]) -> None:
    """Write a set, whole or not at all, when `write_snapshot` is called: RAW_OR_AVERAGED/MODULE.safetensors."""
    files = {f"{name}/{module}": each for name, state in weights.items() for module, each in state.items()}
    _write(_folder(state_folder, "kept", images), _KEPT, files, images=images)


def read_kept(state_folder: Path, images: int) -> dict[str, State]:
    """Return what `write_kept` wrote, on the CPU.

    Raises:
        DarkroomError: it is missing or damaged, and cannot be made again without its part of the training.
    """
    folder = _folder(state_folder, "kept", images)
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


# --------------------------------------------------------------------------------------------------------------------
# Any width, from the snapshots


def product(time: ArrayLike, gamma: ArrayLike, other_time: ArrayLike, other_gamma: ArrayLike) -> Numbers:
    """Return ∫ p q ds of two profiles, broadcast over arrays, in float64.

    With m = min(t, t'): (γ + 1)(γ' + 1) / (γ + γ' + 1) · (m/t)^(γ + 1) · (m/t')^(γ' + 1) / m.
    """
    t, g, u, h = (np.asarray(value, dtype=np.float64) for value in (time, gamma, other_time, other_gamma))
    least = np.minimum(t, u)
    scale = (g + 1) * (h + 1) / (g + h + 1) / least
    return scale * (least / t) ** (g + 1) * (least / u) ** (h + 1)


def coefficients(times: Numbers, gammas: Numbers, time: float, gamma: float) -> tuple[Numbers, float]:
    """Return the coefficients of kept profiles whose sum is nearest to a wanted one, and the relative residual.

    Minimises || Σ x_i p_i - q ||² under Σ x_i = 1, by its normal equations with one multiplier, in float64:
    Σ_j <p_i, p_j> x_j + λ = <p_i, q>. The paper's least squares (section 3.2) leave the sum free; here what is common
    to all weights of the training is returned as it is, see docs/ema.md.

    Args:
        times: of the kept profiles, (N,), in any unit.
        gammas: their exponents, (N,).
        time: of the wanted profile, in the same unit.
        gamma: its exponent.

    Returns:
        (N,) and || Σ x_i p_i - q || / || q ||.
    """
    count = len(times)
    gram = product(times[:, None], gammas[:, None], times, gammas)  # (N, N)
    right = product(times, gammas, time, gamma)  # (N,)
    norm = float(product(time, gamma, time, gamma))
    # In units in which every kept profile has norm 1: short ones are large.
    scale = 1 / np.sqrt(np.diag(gram))
    one = scale / scale.max()
    system = np.zeros((count + 1, count + 1))
    system[:count, :count] = gram * scale[:, None] * scale
    system[:count, count] = system[count, :count] = one
    # Least squares again, as widths that are nearly the same make the system singular.
    solution = np.linalg.lstsq(system, np.append(right * scale, 1 / scale.max()), rcond=None)[0]
    found = solution[:count] * scale
    squared = (found @ gram @ found - 2 * found @ right + norm) / norm
    return found, float(np.sqrt(max(0.0, squared)))


def reconstruct(folder: Path, sigma_rel: float, images: int | None = None) -> dict[str, Tensor]:
    """Return the weights of a module averaged with a relative width, from the snapshots of its training.

    Args:
        folder: what `export_snapshots` wrote, say `models/generator/profiles`.
        sigma_rel: the width wanted, as a fraction of the training's length.
        images: of the time at which the average ends; None: the end of the training.

    Returns:
        Tensors by name with the dtypes of the module; summed in float64. Buffers are those of the last snapshot used.

    Raises:
        DarkroomError: there are no snapshots, one is damaged, or they cannot express this width.
    """
    if not (folder / NAME).is_file():
        raise DarkroomError(
            f"sigma_rel is {sigma_rel}, but {folder} is missing: the training kept no averages to rebuild it from. "
            "Set ema_profiles of the training, say to 0.05 and 0.1, and train again, or leave sigma_rel empty."
        )
    manifest = open_artifact(folder, _PROFILES)
    last = manifest["snapshots"][-1] if images is None else images
    kept = [(at, width) for at in manifest["snapshots"] if at <= last for width in manifest["widths"]]
    if not kept:
        raise ArtifactError(
            f"{folder} has no snapshot up to image {last:,}: the first is at {manifest['snapshots'][0]:,}."
        )
    times = np.array([at for at, _ in kept], dtype=np.float64)
    gammas = np.array([exponent(width) for _, width in kept])
    found, residual = coefficients(times, gammas, last, exponent(sigma_rel))
    gain = float(np.abs(found).sum())
    if residual > MAX_RESIDUAL or gain > MAX_GAIN:
        raise DarkroomError(
            f"sigma_rel {sigma_rel} cannot be rebuilt from {folder}, which holds {manifest['widths']} at "
            f"{len(manifest['snapshots'])} places: the relative residual is {residual:.2g} (at most {MAX_RESIDUAL:g}) "
            f"and the sum of the coefficients' sizes {gain:.3g} (at most {MAX_GAIN:g}). Take a width nearer to the "
            "kept ones, or train with more ema_profiles or ema_snapshots."
        )
    sums: dict[str, Tensor] = {}
    for (at, width), coefficient in zip(kept, found.tolist(), strict=True):
        weights = load_file(folder / f"images-{at:012d}" / f"{width!r}.safetensors")
        for name in weights.keys() - set(manifest["copied"]):
            sums.setdefault(name, torch.zeros_like(weights[name], dtype=torch.float64)).add_(
                weights[name].double(), alpha=coefficient
            )
    return {name: sums[name].to(value.dtype) if name in sums else value for name, value in weights.items()}
