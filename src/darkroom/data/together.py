"""Checks that latents or embeddings of several parts can be read as one dataset."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from darkroom.artifacts.manifest import ArtifactError, manifest_hash


def require_fit(
    what: str,
    manifests: Mapping[str, dict[str, Any]],
    alike: Callable[[dict[str, Any]], Mapping[str, Any]],
    shards_root: Path | None,
    stage: str,
) -> None:
    """Check that there is a part, that all parts have equal metadata, and that they were made from the image shards.

    Args:
        what: the kind of artifact as a plural, for the message: "latents".
        manifests: the manifest of each part.
        alike: returns the metadata of a manifest that must be equal, by a plural noun for the message: "shapes"; None
            matches any value.
        shards_root: the folder of the image shards; None: not checked.
        stage: the stage that makes them.

    Raises:
        ArtifactError: two parts differ (the message names them and the entry), there is no part, or the image shards
            have changed (the message names the part).
    """
    if not manifests:
        raise ArtifactError("no part was requested: name at least one under `parts` in params.yaml.")
    one, *others = manifests
    for part in others:
        theirs = alike(manifests[part])
        for name, fact in alike(manifests[one]).items():
            if theirs[name] != fact and None not in (fact, theirs[name]):
                raise ArtifactError(
                    f"the {what} of `{one}` and `{part}` have different {name} ({fact} and {theirs[name]}): make them "
                    f"again (`dvc repro {stage}`)."
                )
    for part, manifest in manifests.items() if shards_root else ():
        if shards_root and manifest["shards"] != manifest_hash(shards_root / part):
            raise ArtifactError(
                f"the {what} of `{part}` were made from other images than those in {shards_root / part}: make them "
                f"again (`dvc repro {stage}@{part}`)."
            )
