"""What becomes of the checkpoints of a training when the code has changed since they were written.

A training's state is found by its parameters and inputs alone, so that an edit never makes a checkpoint unfindable.
Each checkpoint holds the fingerprint of the code that led to it. Where that differs from the code that runs now,
`run.changed_code` decides: `restart` begins anew and sets the checkpoints aside, in `STATE/code-DIGEST/`, where the
same code finds them again; `resume` continues from the furthest one, and the manifest says at which image.
"""

# No effect on any output: decides from which checkpoint a training continues

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

from darkroom.artifacts.manifest import read_manifest
from darkroom.dag.fingerprint.stages import Fingerprint, changes
from darkroom.dag.fingerprint.trees import digest
from darkroom.params.run import ChangedCode
from darkroom.training.state import FINISHED

_MOST = 12  # lines of changes that are printed


def code_of(folder: Path) -> Fingerprint:
    """Return the fingerprint of the code that led to a checkpoint."""
    return dict(read_manifest(folder, "checkpoint")["facts"].get("code", {}))


def choose_checkpoint(state: Path, code: Fingerprint, choice: ChangedCode) -> tuple[Path | None, bool]:
    """Return the checkpoint from which a training continues, None: from image 0; and whether other code wrote it.

    Moves it to where it belongs in the state folder, and prints what was decided and why. `code` is the fingerprint of
    the code that runs now, `choice` `run.changed_code`.
    """
    from darkroom.training import checkpoint  # loads torch

    newest = map(checkpoint.newest, (state, *sorted(state.glob("code-*"))))
    found = [folder for folder in newest if folder is not None]
    best, here = choose(found, code, choice), next((folder for folder in found if folder.parent == state), None)
    changed = best is not None and code_of(best) != code
    if other := next((folder for folder in (best, here) if folder is not None and code_of(folder) != code), None):
        lines = changes(code_of(other), code)
        more = [f"and {len(lines) - _MOST} modules more"] if len(lines) > _MOST else []
        print("\n  ".join([f"the code has changed since {other.name} was written:", *lines[:_MOST], *more]))
    if here is not None and (best is None or code_of(best) != code_of(here)):
        aside = _set_aside(state, code_of(here))
        print(
            f"`run.changed_code` is {choice}: the {_images(here):,} images trained before are left in {aside}. "
            "To continue from them, undo the change, or stop and set `run.changed_code` to resume."
        )
    if best is None:
        return None, False
    if best.parent != state:
        _move(best.parent, state)
        print(f"the checkpoints of {best.parent.name} are taken up again.")
    if changed:
        print(f"`run.changed_code` is resume: continues from image {_images(best):,} with the changed code.")
    return state / best.name, changed


def choose(checkpoints: Sequence[Path], code: Fingerprint, choice: ChangedCode) -> Path | None:
    """Return the checkpoint to continue from: the furthest one of the same code, or where `resume` is chosen of all."""
    fitting = [folder for folder in checkpoints if choice == "resume" or code_of(folder) == code]
    return max(fitting, key=_images, default=None)


def work_name(state: Path, code: Fingerprint) -> str:
    """Return what a training is called elsewhere: STAGE-KEY-CODE, so that other code never meets its checkpoints."""
    return f"{state.name}-{_digest(code)[:8]}" if code else state.name


def _digest(code: Fingerprint) -> str:
    return digest(json.dumps(code, sort_keys=True))


def _images(folder: Path) -> int:
    return int(folder.name.removeprefix("images-"))


def _set_aside(state: Path, code: Fingerprint) -> Path:
    """Move the checkpoints and kept weights of a state into a folder named after their code; return it."""
    aside = state / f"code-{_digest(code)}"
    _move(state, aside)
    (state / FINISHED).unlink(missing_ok=True)
    return aside


def _move(source: Path, target: Path) -> None:
    """Move what a state holds of the same code; the checkpoints last, since they count on the others.

    What is in the target already is the same bytes: a move that was killed is taken up.
    """
    target.mkdir(exist_ok=True)
    for name in ("kept/images-*", "images-*"):
        for folder in sorted(source.glob(name)):
            place = target / folder.relative_to(source)
            place.parent.mkdir(exist_ok=True)
            if place.exists():
                shutil.rmtree(folder)
            else:
                folder.rename(place)
    if source.name.startswith("code-"):
        for folder in (source / "kept", source):
            if folder.is_dir() and not any(folder.iterdir()):
                folder.rmdir()
