"""Checks that parts can be read as one dataset: equal formats, and made from the current image shards."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from darkroom.artifacts.manifest import ArtifactError, manifest_hash


def require_equal_metadata(what: str, metadata: Mapping[str, Mapping[str, Any]], again: str, stage: str) -> None:
    """Check that there is at least one part, and that all parts have equal metadata; None matches any value.

    Args:
        what: the kind of artifact as a plural, for the message: "latents".
        metadata: the metadata of each part, by a plural noun for the message: "shapes".
        again: the remedy, as an imperative.
        stage: the stage that carries out the remedy.

    Raises:
        ArtifactError: two parts differ (the message names them and the entry), or there is no part.
    """
    if not metadata:
        raise ArtifactError("no part was requested: name at least one under `parts` in params.yaml.")
    (one, first), *others = metadata.items()
    for part, theirs in others:
        for name, fact in first.items():
            if theirs[name] != fact and None not in (fact, theirs[name]):
                raise ArtifactError(
                    f"the {what} of `{one}` and `{part}` have different {name} ({fact} and {theirs[name]}): {again} "
                    f"(`dvc repro {stage}`)."
                )


def require_made_from(
    what: str, manifests: Mapping[str, Mapping[str, Any]], shards_root: Path, again: str, stage: str
) -> None:
    """Check that the artifacts of each part were made from the image shards in `shards_root`/PART.

    Raises:
        ArtifactError: the image shards have changed; the message names the part.
    """
    for part, manifest in manifests.items():
        if manifest["shards"] != manifest_hash(shards_root / part):
            raise ArtifactError(
                f"the {what} of `{part}` were made from other images than those in {shards_root / part}: {again} "
                f"(`dvc repro {stage}@{part}`)."
            )
