"""Power-function averages of weights, and their snapshots: what a training keeps to rebuild any width afterwards.

Karras et al., 2024 (arXiv 2312.02696), section 3; see `training/power.py` for the profile and `training/posthoc.py`
for the reconstruction.
"""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from safetensors.torch import save as serialise
from torch import nn

from darkroom.artifacts.atomic import atomic_folder, write_bytes
from darkroom.artifacts.manifest import ArtifactError, check_file, file_hashes, read_manifest, write_manifest
from darkroom.errors import DarkroomError
from darkroom.params.training import Training
from darkroom.training.ema import State
from darkroom.training.power import decay, exponent

_SNAPSHOT, _PROFILES = "profiles_snapshot", "profiles"


class Profiles:
    """Averages of named modules with some relative widths: w_ema <- β w_ema + (1 - β) w, β = (1 - 1/t)^(γ + 1).

    Buffers and integer tensors are copied. Without widths nothing is kept and nothing is done. `state` maps the name of
    a profile to module to tensors; a checkpoint holds it.
    """

    def __init__(self, modules: Mapping[str, nn.Module], sigma_rel: Sequence[float]) -> None:
        self._modules = modules
        self._widths = {repr(width): width for width in sigma_rel}
        self._exponents = {name: exponent(width) for name, width in self._widths.items()}
        self.state: dict[str, State] = {
            name: {
                module: {key: value.detach().clone() for key, value in found.state_dict().items()}
                for module, found in modules.items()
            }
            for name in self._widths
        }

    @torch.no_grad()
    def update(self, updates: int) -> None:
        """Take in the weights after update number `updates`, counted from 0: the first replaces the initial ones."""
        if not self.state:
            return
        for module, found in self._modules.items():
            averaged = _averaged(found)
            keys = sorted(averaged)
            weights = {key: value.detach() for key, value in found.state_dict().items()}
            for name, state in self.state.items():
                averages = state[module]
                for key in weights.keys() - averaged:
                    averages[key].copy_(weights[key])
                torch._foreach_lerp_(
                    [averages[key] for key in keys],
                    [weights[key] for key in keys],
                    1 - decay(updates + 1, self._exponents[name]),
                )

    @staticmethod
    def due(before_images: int, after_images: int, total_images: int, snapshots: int) -> bool:
        """Return whether an update passed one of `snapshots` evenly spread places, of which the end is the last."""
        return after_images * snapshots // total_images > before_images * snapshots // total_images

    def snapshot(self, state_folder: Path, images: int) -> None:
        """Write all averages to `STATE/snapshots/images-XXXXXXXXXXXX/`, whole or not at all.

        To be called before the checkpoint of the same image is saved: a training that is killed between the two
        repeats the update and writes the same bytes again.
        """
        if not self.state:
            return
        with atomic_folder(_folder(state_folder, images)) as temporary:
            for name, modules in self.state.items():
                for module, averages in modules.items():
                    (temporary / module).mkdir(exist_ok=True)
                    data = serialise({key: value.cpu().contiguous() for key, value in averages.items()})
                    write_bytes(temporary / module / f"{name}.safetensors", data)
            copied = {
                module: sorted(found.state_dict().keys() - _averaged(found)) for module, found in self._modules.items()
            }
            files = file_hashes(temporary)
            write_manifest(temporary, _SNAPSHOT, images=images, widths=self._widths, copied=copied, files=files)


def _averaged(module: nn.Module) -> set[str]:
    """Return the names under which a module's state holds floating-point parameters, shared ones under each name."""
    return {
        name for name, value in module.named_parameters(remove_duplicate=False) if torch.is_floating_point(value)
    } & module.state_dict().keys()


def _folder(state_folder: Path, images: int) -> Path:
    return state_folder / "snapshots" / f"images-{images:012d}"


def snapshot_images(settings: Training) -> list[int]:
    """Return the images seen at each snapshot of a training: those for which `Profiles.due` holds, in order."""
    count, total, batch = settings.ema_snapshots, settings.images, settings.batch
    return sorted({-(-number * total // (count * batch)) * batch for number in range(1, count + 1)})


def export(state_folder: Path, module_name: str, out: Path, settings: Training) -> None:
    """Copy the snapshots of one module into a declared output, `out`: `images-N/WIDTH.safetensors` and a manifest.

    Without `ema_profiles` nothing is written, not even the folder.

    Raises:
        DarkroomError: a snapshot is missing or damaged, and cannot be made again without its part of the training.
    """
    if not settings.ema_profiles:
        return
    with atomic_folder(out) as temporary:
        hashes: dict[str, str] = {}
        copied: list[str] = []
        for images in snapshot_images(settings):
            source = _folder(state_folder, images)
            try:
                manifest = read_manifest(source, _SNAPSHOT)
                for name in manifest["widths"]:
                    file = f"{module_name}/{name}.safetensors"
                    target = f"{source.name}/{name}.safetensors"
                    (temporary / target).parent.mkdir(exist_ok=True)
                    if (source / file).is_file():
                        shutil.copyfile(source / file, temporary / target)
                    # The copy is checked: it covers what was read and what was written.
                    check_file(temporary / target, manifest["files"][file])
                    hashes[target] = manifest["files"][file]
            except ArtifactError as error:
                raise DarkroomError(
                    f"the snapshot {source} of the averages is missing or damaged: remove {state_folder} and train "
                    f"again, or without ema_profiles."
                ) from error
            copied = manifest["copied"][module_name]
        snapshots = snapshot_images(settings)
        widths = sorted(set(settings.ema_profiles))
        write_manifest(temporary, _PROFILES, snapshots=snapshots, widths=widths, copied=copied, files=hashes)
