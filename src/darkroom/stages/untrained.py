"""What a training writes where nothing is to be trained: a folder that says why, and curves without a point."""

from pathlib import Path

from darkroom.artifacts.atomic import atomic_folder
from darkroom.artifacts.manifest import write_manifest
from darkroom.processes.launch import rank
from darkroom.training.curves import write_curves


def write_untrained(out: Path, curves: Path, kind: str, reason: str, so: str) -> None:
    """Write an artifact without weights; of several processes, the first alone does.

    Args:
        out: its folder.
        curves: that of its curves.
        kind: of its manifest, which holds `trained` (false) and `reason`.
        reason: why nothing is trained.
        so: what follows, for the person.
    """
    if (place := rank()) is not None and place.number:
        return
    write_curves(curves, [])
    with atomic_folder(out) as folder:
        write_manifest(folder, kind, trained=False, reason=reason, files={})
    print(f"{reason}: {so}")
