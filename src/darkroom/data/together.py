"""Parts whose rows are read together must be alike, and made of the images that are there."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from darkroom.artifacts.manifest import ArtifactError, manifest_hash


def require_alike(what: str, facts: Mapping[str, Mapping[str, Any]], again: str, stage: str) -> None:
    """Check that there is a part, and that all have the same facts; None is a part that has no such thing.

    Args:
        what: of the parts, a plural, for the message.
        facts: of each part, by the plural of what they are.
        again: what to do about it, an imperative.
        stage: that does it.

    Raises:
        ArtifactError: two parts differ; names them and the fact. Or there is no part.
    """
    if not facts:
        raise ArtifactError("no part was asked for: name at least one under `parts` in params.yaml.")
    (one, first), *others = facts.items()
    for part, theirs in others:
        for name, fact in first.items():
            if theirs[name] != fact and None not in (fact, theirs[name]):
                raise ArtifactError(
                    f"the {what} of `{one}` and `{part}` have different {name} ({fact} and {theirs[name]}): {again} "
                    f"(`dvc repro {stage}`)."
                )


def require_made_of(
    what: str, manifests: Mapping[str, Mapping[str, Any]], shards_root: Path, again: str, stage: str
) -> None:
    """Check that each part's were made of the image shards that lie in `shards_root`/PART.

    Raises:
        ArtifactError: the image shards are others; names the part.
    """
    for part, manifest in manifests.items():
        if manifest["shards"] != manifest_hash(shards_root / part):
            raise ArtifactError(
                f"the {what} of `{part}` were made from other images than those in {shards_root / part}: {again} "
                f"(`dvc repro {stage}@{part}`)."
            )
