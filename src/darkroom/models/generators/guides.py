"""Additional guides of a generator: a guide network of another run, and a classifier of noisy latents."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from darkroom.artifacts.manifest import NAME, read_manifest
from darkroom.artifacts.models import CLASSIFIER, GENERATOR
from darkroom.errors import DarkroomError
from darkroom.models.generators.settings import CLASSIFIER as OURS
from darkroom.params.section import NO_FILE

_WITHOUT_VARIANCE = {"variance", "variance_range"}  # the output after the guided one
# Entries of the manifests that must be equal, besides those of `prediction`.
_SAME = (
    *("tokenizer", "latent_shape", "latent_mean", "latent_std", "classes", "clip", "context_length", "objective"),
    "condition",
)


def require_guides(key: str, sampling: Any, manifest: Mapping[str, Any], exists: bool = True) -> None:
    """Check folders that a section of params.yaml names, by their manifests; loads no torch.

    Args:
        key: the key of the section.
        sampling: its values.
        manifest: the present or future manifest of the generator.
        exists: whether models/classifier exists; False: `train_classifier` will train it.

    Raises:
        DarkroomError: a folder holds another artifact, or was trained differently; names folder and key.
    """
    if (guide := getattr(sampling, "guide", NO_FILE)) != NO_FILE:
        _require(f"{key}.guide", guide, GENERATOR, manifest, getattr(sampling, "guidance_variance", False))
    condition = manifest.get("condition", "class")
    if condition != "class" and getattr(sampling, "classifier_scale", 0.0):
        raise DarkroomError(
            f"`{key}.classifier_scale` is {sampling.classifier_scale}, and "
            f"`{key.replace('sample_', 'train_')}.model.condition` is {condition}: a classifier guides to classes, so "
            "set the former to 0.0."
        )
    if (classifier := getattr(sampling, "classifier", NO_FILE)) != NO_FILE and (exists or classifier != OURS):
        _require(f"{key}.classifier", classifier, CLASSIFIER, manifest)


def _require(key: str, folder: str, kind: str, manifest: Mapping[str, Any], variance: bool = False) -> None:
    """Check the manifest of a guide against that of the generator, with `variance` also its entries on the variance."""
    if not (Path(folder) / NAME).is_file():
        raise DarkroomError(
            f"`{key}` is {folder}, which holds no {NAME}: use a folder like models/{kind} of another run, or {NO_FILE}."
        )
    guide = read_manifest(Path(folder), kind)
    if not guide.get("trained", True):
        raise DarkroomError(f"`{key}` is {folder}, which was not trained, because {guide['reason']}.")
    unlike = set() if variance else _WITHOUT_VARIANCE
    unlike |= {"target", "flow_target"} if kind == CLASSIFIER else set()
    theirs, ours = _facts(guide, unlike), _facts(manifest, unlike)
    for name in theirs:
        if name in ours and theirs[name] != ours[name]:
            raise DarkroomError(
                f"`{key}` is {folder}, which was trained with `{name}` {_short(theirs[name])}, but the generator with "
                f"{_short(ours[name])}: use one that fits, or {NO_FILE}."
            )


def _facts(manifest: Mapping[str, Any], unlike: set[str]) -> dict[str, Any]:
    """Return the entries that two generators must share; a manifest without `time_units` has `thousand`."""
    predicted = {"time_units": "thousand", **manifest.get("prediction", {})}
    same = {name: manifest[name] for name in _SAME if name in manifest}
    return {"condition": "class", **same, **{name: predicted[name] for name in predicted if name not in unlike}}


def _short(value: Any) -> str:
    listed = ", ".join(map(str, value[:5])) + (", …" if len(value) > 5 else "") if isinstance(value, list) else value
    return f"{listed}"
