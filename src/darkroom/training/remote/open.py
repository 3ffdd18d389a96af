"""What `run.checkpoints_to` and `run.checkpoints_from` name."""

# No effect on any output: copies checkpoints elsewhere and back; what comes back is checked by its hashes

import re

from darkroom.errors import DarkroomError
from darkroom.remote import require_no_password, telling
from darkroom.training.remote.place import Place, Store


def _store(text: str, key: str) -> Store:
    kind, _, name = text.partition(":")
    if kind == "hub":
        from darkroom.training.remote.hub import Hub

        if not re.fullmatch(r"[\w.-]+/[\w.-]+", name):
            raise DarkroomError(f"{text!r} names no repository of the Hub: write hub:OWNER/NAME.")
        return Hub(name, key)
    if kind == "wandb":
        from darkroom.training.remote.wandb_artifacts import WandbArtifacts

        if not re.fullmatch(r"([\w.-]+/)?[\w.-]+", name):
            raise DarkroomError(f"{text!r} names no project of wandb: write wandb:PROJECT or wandb:ENTITY/PROJECT.")
        return WandbArtifacts(name, key)
    from darkroom.training.remote.files import Files

    require_no_password(text, "run.checkpoints_to` or `run.checkpoints_from")
    with telling(f"{text} is no place for checkpoints"):
        return Files(text, key)


def open_place(text: str | None, key: str, keep: int) -> Place | None:
    """Return the place that `text` names for one training's checkpoints, or None where it names none.

    Nothing is read, written or asked over a network yet.

    Args:
        text: a folder, an fsspec URL, `wandb:PROJECT` or `hub:OWNER/NAME`; None: nowhere.
        key: the name of the training, STAGE-KEY-CODE.
        keep: how many checkpoints stay there, at least 2.

    Raises:
        DarkroomError: `text` names no such place, holds a password, or needs a package that is not installed.
    """
    return None if text is None else Place(_store(text, key), text, keep)
