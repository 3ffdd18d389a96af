"""Weights kept on the way, every `keep_every` images: raw and averaged, so that any of them can be sampled later.

Each set is written to `STATE/kept/images-XXXXXXXXXXXX/` when its optimizer step is done, and leaves with the outputs.
"""

from collections.abc import Mapping
from pathlib import Path

from safetensors.torch import load_file
from safetensors.torch import save as serialise
from torch import Tensor

from darkroom.artifacts.atomic import atomic_folder, write_bytes
from darkroom.artifacts.manifest import ArtifactError, file_hashes, open_artifact, write_manifest
from darkroom.errors import DarkroomError

State = dict[str, dict[str, Tensor]]  # module to tensors by name
_KIND = "kept_weights"


def kept_folder(model: Path, images: int) -> Path:
    """Return where a model's folder has the weights of so many images seen, raw ones in `raw/` there."""
    return model / "checkpoints" / f"images-{images:012d}"


def write_kept(state_folder: Path, images: int, weights: Mapping[str, State]) -> None:
    """Write a set, whole or not at all: RAW_OR_AVERAGED/MODULE.safetensors and a manifest.

    To be called before the checkpoint of the same image is saved: a training that is killed between the two repeats the
    step and writes the same bytes again.
    """
    with atomic_folder(_folder(state_folder, images)) as temporary:
        for name, state in weights.items():
            (temporary / name).mkdir()
            for module, tensors in state.items():
                data = serialise({key: value.cpu().contiguous() for key, value in tensors.items()})
                write_bytes(temporary / name / f"{module}.safetensors", data)
        write_manifest(temporary, _KIND, images=images, files=file_hashes(temporary))


def read_kept(state_folder: Path, images: int) -> dict[str, State]:
    """Return what `write_kept` wrote, on the CPU.

    Raises:
        DarkroomError: it is missing or damaged, and cannot be made again without its part of the training.
    """
    folder = _folder(state_folder, images)
    try:
        open_artifact(folder, _KIND)
    except ArtifactError as error:
        raise DarkroomError(
            f"the weights kept in {folder} are missing or damaged: remove {state_folder} and train again."
        ) from error
    return {
        group.name: {file.stem: load_file(file) for file in sorted(group.glob("*.safetensors"))}
        for group in sorted(path for path in folder.iterdir() if path.is_dir())
    }


def _folder(state_folder: Path, images: int) -> Path:
    return state_folder / "kept" / f"images-{images:012d}"
