"""What becomes of the checkpoints of a training when the code has changed since they were written.

A training's state is found by its parameters and inputs alone, so that an edit never makes a checkpoint unfindable.
Each checkpoint holds the fingerprint of the code that led to it. Where that differs from the code that runs now,
`run.changed_code` decides: `restart` begins anew and sets the checkpoints aside, in `STATE/code-DIGEST/`, where the
same code finds them again; `resume` continues from the furthest one, and the manifest says at which image.
"""

# No effect on any output: decides from which checkpoint a training continues

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from darkroom.artifacts.manifest import read_manifest
from darkroom.fingerprint.stages import Fingerprint, changes
from darkroom.fingerprint.trees import digest
from darkroom.schemas.run import ChangedCode
from darkroom.training import checkpoint

_MOST = 12  # lines of changes that are printed


@dataclass(frozen=True)
class Start:
    """Where a training continues: a checkpoint, or None at image 0; and whether other code wrote it."""

    folder: Path | None
    changed: bool = False


def code_of(folder: Path) -> Fingerprint:
    """Return the fingerprint of the code that led to a checkpoint."""
    return dict(read_manifest(folder, checkpoint.KIND)["facts"].get("code", {}))


def choose_checkpoint(state: Path, code: Fingerprint, choice: ChangedCode) -> Start:
    """Return where a training continues, with its checkpoint moved to where it belongs; print what was decided and why.

    Args:
        state: the training's state folder.
        code: the fingerprint of the code that runs now.
        choice: `run.changed_code`.
    """
    places = {place: checkpoint.newest(place) for place in (state, *sorted(state.glob("code-*")))}
    found = {place: folder for place, folder in places.items() if folder is not None}
    if not found:
        return Start(None)
    same = [place for place, folder in found.items() if code_of(folder) == code]
    best = max(found, key=lambda place: _images(found[place])) if choice == "resume" else next(iter(same), None)
    changed = best is not None and best not in same
    if changed or (state in found and state not in same):
        _print_changes(found[best if changed and best else state], code)
    if best == state:
        if changed:
            print(
                f"`run.changed_code` is resume: continues from image {_images(found[state]):,} with the changed code."
            )
        return Start(found[state], changed)
    if state in found:
        aside = _set_aside(state, code_of(found[state]))
        print(
            f"`run.changed_code` is {choice}: the {_images(found[state]):,} images trained before are left in {aside}. "
            "To continue from them, undo the change, or stop and set `run.changed_code` to resume."
        )
    if best is None:
        return Start(None)
    _move(best, state)
    print(f"the checkpoints of {best.name} are taken up again.")
    return Start(state / found[best].name, changed)


def _print_changes(folder: Path, code: Mapping[str, dict[str, str]]) -> None:
    lines = changes(code_of(folder), code)
    more = [f"and {len(lines) - _MOST} modules more"] if len(lines) > _MOST else []
    print("\n  ".join([f"the code has changed since {folder.name} was written:", *lines[:_MOST], *more]))


def _images(folder: Path) -> int:
    return int(folder.name.removeprefix("images-"))


def _set_aside(state: Path, code: Fingerprint) -> Path:
    """Move the checkpoints and snapshots of a state into a folder named after their code; return it."""
    aside = state / f"code-{digest(json.dumps(code, sort_keys=True))}"
    _move(state, aside)
    return aside


def _move(source: Path, target: Path) -> None:
    """Move checkpoints and snapshots; the checkpoints last, since they count on the snapshots."""
    target.mkdir(exist_ok=True)
    for name in ("snapshots/images-*", "images-*"):
        for folder in sorted(source.glob(name)):
            place = target / folder.relative_to(source)
            place.parent.mkdir(exist_ok=True)
            folder.rename(place)
    if source.name.startswith("code-"):
        for folder in (source / "snapshots", source):
            if folder.is_dir() and not any(folder.iterdir()):
                folder.rmdir()
