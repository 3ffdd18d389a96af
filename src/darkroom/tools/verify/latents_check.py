"""The layout of data/latents/PART for `check_derived`."""

from functools import partial
from pathlib import Path

from darkroom.artifacts.manifest import ArtifactError
from darkroom.data.index import LATENTS
from darkroom.data.latent_file import CODEBOOK, KIND, map_latent_shard, stored_shape
from darkroom.data.splits import SPLITS
from darkroom.tools.verify.derived_check import File, Layout, SplitEntry
from darkroom.tools.verify.manifests import Latents, Shape


def _rows(manifest: Latents) -> list[SplitEntry]:
    splits = {split: getattr(manifest.splits, split) for split in SPLITS}
    return [
        SplitEntry(split, [entry.images for entry in metadata.shards], metadata.index_sha256, metadata.images)
        for split, metadata in splits.items()
    ]


def _files(manifest: Latents, folder: Path) -> list[File]:
    found = []
    for split in SPLITS:
        for entry in getattr(manifest.splits, split).shards:
            look = partial(_look, latent=manifest.latent, images=entry.images)
            found.append(File(folder / split / f"{entry.name}.safetensors", entry.sha256, look))
    if manifest.codebook is not None:
        found.append(File(folder / CODEBOOK, manifest.codebook.sha256, lambda path: None))
    return found


def _look(path: Path, latent: Shape, images: int) -> tuple[str, str] | None:
    """Return what is wrong with a shard as (what, detail); None: nothing."""
    try:
        file = map_latent_shard(path)
    except ArtifactError as error:
        return "is no shard of latents", str(error)
    if (file.form, file.dtype_name) != (latent.form, latent.dtype):
        detail = f"{file.form} in {file.dtype_name}, and {latent.form} in {latent.dtype}"
        return "has another form or dtype than the manifest says", detail
    if file.shape != (images, *stored_shape(latent.form, latent.shape)):
        return "has another shape than the manifest says", str(file.shape)
    return None


LATENT_LAYOUT = Layout(KIND, Latents, LATENTS, "encode_latents", "encode them again", _rows, _files)
