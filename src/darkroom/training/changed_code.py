"""What becomes of the checkpoints of a training when the code has changed since they were written.

A training's state is found by its parameters and inputs alone, so that an edit never makes a checkpoint unfindable.
Each checkpoint holds the fingerprint of the code that led to it. Where that differs from the code that runs now,
`run.changed_code` decides: `restart` begins anew and sets the checkpoints aside, in `STATE/code-DIGEST/`, where the
same code finds them again; `resume` continues from the furthest one, and the manifest says at which image.
"""

# No effect on any output: decides from which checkpoint a training continues

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from darkroom.artifacts.manifest import read_manifest
from darkroom.dag.fingerprint.stages import Fingerprint, changes
from darkroom.dag.fingerprint.trees import digest
from darkroom.params.run import ChangedCode
from darkroom.training.state import FINISHED

_MOST = 12  # lines of changes that are printed


@dataclass(frozen=True)
class Start:
    """Where a training continues: a checkpoint, or None at image 0; and whether other code wrote it."""

    folder: Path | None
    changed: bool = False


def code_of(folder: Path) -> Fingerprint:
    """Return the fingerprint of the code that led to a checkpoint."""
    return dict(read_manifest(folder, "checkpoint")["facts"].get("code", {}))


def choose_checkpoint(state: Path, code: Fingerprint, choice: ChangedCode) -> Start:
    """Return where a training continues, with its checkpoint moved to where it belongs; print what was decided and why.

    Args:
        state: the training's state folder.
        code: the fingerprint of the code that runs now.
        choice: `run.changed_code`.
    """
    from darkroom.training import checkpoint  # torch, which a dry run does without

    places = {place: checkpoint.newest(place) for place in (state, *sorted(state.glob("code-*")))}
    found = {place: folder for place, folder in places.items() if folder is not None}
    best = choose(list(found.values()), code, choice)
    here = found.get(state)
    changed = best is not None and code_of(best) != code
    if changed or (here is not None and code_of(here) != code):
        _print_changes(best if changed and best else found[state], code)
    if here is not None and (best is None or code_of(best) != code_of(here)):
        aside = _set_aside(state, code_of(here))
        print(
            f"`run.changed_code` is {choice}: the {_images(here):,} images trained before are left in {aside}. "
            "To continue from them, undo the change, or stop and set `run.changed_code` to resume."
        )
    if best is None:
        return Start(None)
    if best.parent != state:
        _move(best.parent, state)
        print(f"the checkpoints of {best.parent.name} are taken up again.")
    if changed:
        print(f"`run.changed_code` is resume: continues from image {_images(best):,} with the changed code.")
    return Start(state / best.name, changed)


def choose(checkpoints: Sequence[Path], code: Fingerprint, choice: ChangedCode) -> Path | None:
    """Return the checkpoint to continue from: the furthest one of the same code, or where `resume` is chosen of all."""
    fitting = [folder for folder in checkpoints if choice == "resume" or code_of(folder) == code]
    return max(fitting, key=_images, default=None)


def work_name(state: Path, code: Fingerprint) -> str:
    """Return what a training is called elsewhere: STAGE-KEY-CODE, so that other code never meets its checkpoints."""
    return f"{state.name}-{_digest(code)[:8]}" if code else state.name


def _digest(code: Fingerprint) -> str:
    return digest(json.dumps(code, sort_keys=True))


def _print_changes(folder: Path, code: Mapping[str, dict[str, str]]) -> None:
    lines = changes(code_of(folder), code)
    more = [f"and {len(lines) - _MOST} modules more"] if len(lines) > _MOST else []
    print("\n  ".join([f"the code has changed since {folder.name} was written:", *lines[:_MOST], *more]))


def _images(folder: Path) -> int:
    return int(folder.name.removeprefix("images-"))


def _set_aside(state: Path, code: Fingerprint) -> Path:
    """Move the checkpoints, snapshots and kept weights of a state into a folder named after their code; return it."""
    aside = state / f"code-{_digest(code)}"
    _move(state, aside)
    (state / FINISHED).unlink(missing_ok=True)
    return aside


def _move(source: Path, target: Path) -> None:
    """Move what a state holds of the same code; the checkpoints last, since they count on the others.

    What is in the target already is the same bytes: a move that was killed is taken up.
    """
    target.mkdir(exist_ok=True)
    for name in ("snapshots/images-*", "kept/images-*", "images-*"):
        for folder in sorted(source.glob(name)):
            place = target / folder.relative_to(source)
            place.parent.mkdir(exist_ok=True)
            if place.exists():
                shutil.rmtree(folder)
            else:
                folder.rename(place)
    if source.name.startswith("code-"):
        for folder in (source / "snapshots", source / "kept", source):
            if folder.is_dir() and not any(folder.iterdir()):
                folder.rmdir()
