"""A place where the checkpoints of one training also lie: what is pushed there, and what is taken from there.

A training is known by STAGE-KEY-CODE, where KEY is a hash of its parameters and inputs, and CODE one of its code:
another training, or the same with other code, never finds its checkpoints. What leaves the machine is the checkpoint
folder, and the names STAGE-KEY-CODE and images-N; none of them holds a path or a host.
"""

import json
import re
from pathlib import Path
from typing import Any, Protocol

from darkroom.artifacts.atomic import atomic_folder
from darkroom.artifacts.manifest import NAME, ArtifactError, read_manifest, sha256_file
from darkroom.remote import telling
from darkroom.training.checkpoint import KIND, verify

CHECKPOINT = re.compile(r"images-\d+")


class Store(Protocol):
    """Where the checkpoints of one training lie, by the names of their folders."""

    def names(self) -> list[str]:
        """Return the checkpoints that were stored to their end, oldest first."""
        ...

    def upload(self, checkpoint: Path) -> None:
        """Store a checkpoint; a reader sees all of it or nothing, also when this is killed at any instant."""
        ...

    def download(self, name: str, folder: Path) -> None:
        """Write the files of a checkpoint into an empty folder; what is missing there raises ArtifactError."""
        ...

    def remove(self, name: str) -> None:
        """Remove a checkpoint; a reader sees all of it or nothing."""
        ...


def manifest_files(manifest: Any) -> list[str]:
    """Return the names of the files that a checkpoint's manifest lists.

    Raises:
        ArtifactError: it lists none, or one that lies outside of the checkpoint: whoever wrote to the place wrote it.
    """
    files = manifest.get("files") if isinstance(manifest, dict) else None
    if not isinstance(files, dict):
        raise ArtifactError(f"its {NAME} lists no files")
    for name in files:
        if Path(name).is_absolute() or ".." in Path(name).parts or "\\" in name:
            raise ArtifactError(f"its {NAME} names {name!r}, which is no file of a checkpoint")
    return sorted(files)


def _verify(folder: Path, name: str) -> None:
    """Check a downloaded checkpoint.

    Raises:
        ArtifactError: it is not whole.
    """
    try:
        names = manifest_files(json.loads((folder / NAME).read_text()))
    except (OSError, ValueError) as error:
        raise ArtifactError(f"its {NAME} cannot be read ({error})") from error
    manifest = read_manifest(folder, KIND)
    if str(manifest.get("images")) != name.removeprefix("images-").lstrip("0"):
        raise ArtifactError(f"its {NAME} is that of image {manifest.get('images')}")
    for file in names:
        path = folder / file
        if not path.is_file() or sha256_file(path) != manifest["files"][file]:
            raise ArtifactError(f"{file} is missing or not what its {NAME} says")
    if "seal" in manifest:
        verify(folder)


class Place:
    """The checkpoints of one training in a place that params.yaml names.

    Args:
        store: how that place is read and written.
        text: what params.yaml calls it, for messages.
        keep: how many checkpoints stay there, the newest.
    """

    def __init__(self, store: Store, text: str, keep: int) -> None:
        self._store, self._text, self._keep = store, text, max(2, keep)

    def push(self, checkpoint: Path) -> None:
        """Copy a checkpoint folder there, then, and only then, remove older ones.

        Raises:
            DarkroomError: the place cannot be written; the checkpoints before stay. The training can go on.
        """
        with telling(f"cannot copy {checkpoint.name} to {self._text} (`run.checkpoints_to`)"):
            self._store.upload(checkpoint)
            for old in self._store.names()[: -self._keep]:
                self._store.remove(old)

    def fetch(self, state: Path) -> Path | None:
        """Write the newest whole checkpoint into the folder `state`, and return where; None where there is none.

        A damaged one is skipped with a message and the one before it taken. Each file is checked against the manifest
        before the checkpoint appears under its name.

        Raises:
            DarkroomError: the place cannot be read: better no training than one that begins anew in silence.
        """
        what = f"cannot look for checkpoints in {self._text} (`run.checkpoints_from`; empty: train without looking)"
        with telling(what):
            names = self._store.names()
        for name in reversed(names):
            try:
                with atomic_folder(state / name) as temporary:
                    with telling(what):
                        self._store.download(name, temporary)
                    _verify(temporary, name)
            except ArtifactError as error:
                print(f"checkpoint {name} in {self._text} is damaged and left alone: {error}")
            else:
                print(f"fetched checkpoint {name} from {self._text}")
                return state / name
        print(f"no checkpoint of {state.name} to begin with in {self._text}")
        return None
