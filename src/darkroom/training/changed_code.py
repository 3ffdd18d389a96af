"""Decide what to do with checkpoints when the code has changed since they were written.

A training's state is identified only by its parameters and inputs, so an edit never hides a checkpoint.
Each checkpoint holds the fingerprint of the code that led to it. If it differs from the code that runs now,
`run.changed_code` decides: `restart` starts from image 0 and moves the checkpoints to `STATE/code-DIGEST/`, where the
same code finds them again; `resume` continues from the furthest one, and the manifest records at which image.
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
    """Return the checkpoint to continue from (None: start from image 0), and whether other code wrote it.

    Moves it to its place in the state folder, and prints the decision and the reason. `code` is the fingerprint of the
    code that runs now, `choice` is `run.changed_code`.
    """
    from darkroom.training import checkpoint  # loads torch

    folders = map(checkpoint.newest, (state, *sorted(state.glob("code-*"))))
    candidates = list(filter(None, folders))
    best = choose(candidates, code, choice)
    current = next((folder for folder in candidates if folder.parent == state), None)
    changed = best is not None and code_of(best) != code
    if outdated := next((folder for folder in (best, current) if folder is not None and code_of(folder) != code), None):
        lines = changes(code_of(outdated), code)
        more = [f"and {len(lines) - _MOST} modules more"] if len(lines) > _MOST else []
        print("\n  ".join([f"the code has changed since {outdated.name} was written:", *lines[:_MOST], *more]))
    if current is not None and (best is None or code_of(best) != code_of(current)):
        aside = _set_aside(state, code_of(current))
        print(
            f"`run.changed_code` is {choice}: the checkpoints of {_images(current):,} images are kept in {aside}. "
            "To continue from them, undo the change, or stop and set `run.changed_code` to resume."
        )
    if best is None:
        return None, False
    if best.parent != state:
        _move(best.parent, state)
        print(f"continuing from the checkpoints of {best.parent.name}.")
    if changed:
        print(f"`run.changed_code` is resume: continuing from image {_images(best):,} with the changed code.")
    return state / best.name, changed


def choose(checkpoints: Sequence[Path], code: Fingerprint, choice: ChangedCode) -> Path | None:
    """Return the checkpoint to continue from: the furthest one of the same code, or of any code for `resume`."""
    fitting = [folder for folder in checkpoints if choice == "resume" or code_of(folder) == code]
    return max(fitting, key=_images, default=None)


def work_name(state: Path, code: Fingerprint) -> str:
    """Return a training's name in remote stores: STAGE-KEY-CODE, so that other code never finds its checkpoints."""
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
    """Move the files of the same code in a state; the checkpoints last, since they depend on the others.

    Files already in the target have the same bytes, so a killed move is simply continued.
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
