"""What is known of the weights that a training begins with, where they are of this repository."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from darkroom.artifacts.manifest import NAME as MANIFEST
from darkroom.artifacts.manifest import read_manifest
from darkroom.errors import DarkroomError
from darkroom.params.numbers import NO_FILE


def begun_with(folder: str, kind: str) -> Mapping[str, Any]:
    """Return the manifest of a folder of weights; nothing where there is no folder, or it holds those of others."""
    there = folder != NO_FILE and (Path(folder) / MANIFEST).is_file()
    return read_manifest(Path(folder), kind) if there else {}


def require_same(key: str, begun: Mapping[str, Any], facts: Mapping[str, Any], names: Sequence[str]) -> None:
    """Check that the weights that a training begins with come of the same things.

    Args:
        key: of params.yaml, which names the weights.
        begun: the manifest of the weights, or nothing.
        facts: for the manifest of what is trained.
        names: of the facts that must be the same; None of a CLIP: nothing was told, which the shapes show.

    Raises:
        DarkroomError: one is not; names it.
    """
    for name in names:
        if name not in begun or name not in facts:
            continue
        ours, theirs = facts[name], begun[name]
        if ours != theirs and (name == "tokenizer" or None not in (ours, theirs)):
            raise DarkroomError(
                f"the weights under `{key}` were trained with another {name} ({theirs}, and here {ours}): take others, "
                f"or {NO_FILE} to begin anew."
            )
