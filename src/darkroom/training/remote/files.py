"""Checkpoints in a folder or behind a URL of fsspec: PLACE/STAGE-KEY/images-N/, the manifest written last."""

import json
import os
from pathlib import Path

from fsspec.core import url_to_fs
from fsspec.implementations.local import LocalFileSystem

from darkroom.artifacts.manifest import NAME, ArtifactError
from darkroom.errors import DarkroomError
from darkroom.training.remote.place import CHECKPOINT, manifest_files


class Files:
    """A store in any file system that fsspec knows. A checkpoint without its manifest is not there.

    Args:
        url: a folder, or a URL. A relative folder is one of the main checkout, also in a queued experiment, whose own
            copy of the repository is removed afterwards.
        key: the name of the training.
    """

    def __init__(self, url: str, key: str) -> None:
        if "://" not in url:
            url = str(Path(os.environ.get("DVC_ROOT", ".")).absolute() / Path(url).expanduser())
        self._fs, self._base = url_to_fs(url)
        self._root = f"{self._base.rstrip('/')}/{key}"

    def _folders(self) -> list[str]:
        self._fs.invalidate_cache()  # object stores remember their listings, and other machines write here, too
        try:
            paths = self._fs.ls(self._root, detail=False)
        except FileNotFoundError:
            if isinstance(self._fs, LocalFileSystem) and not self._fs.isdir(self._base):
                # Perhaps a disk that is not mounted: then a training would begin anew where it should go on.
                raise DarkroomError(f"the folder {self._base} does not exist: mount it, or make it.") from None
            return []
        names = [path.rstrip("/").rpartition("/")[2] for path in paths]
        return sorted(name for name in names if CHECKPOINT.fullmatch(name))

    def names(self) -> list[str]:
        """Return the checkpoints that have a manifest, oldest first."""
        return [name for name in self._folders() if self._fs.exists(f"{self._root}/{name}/{NAME}")]

    def upload(self, checkpoint: Path) -> None:
        """Copy the files, then the manifest, and remove what killed copies left behind of older ones."""
        target = f"{self._root}/{checkpoint.name}"
        self.remove(checkpoint.name)
        files = sorted(path for path in checkpoint.rglob("*") if path.is_file() and path != checkpoint / NAME)
        for path in [*files, checkpoint / NAME]:
            remote = f"{target}/{path.relative_to(checkpoint).as_posix()}"
            self._fs.makedirs(remote.rpartition("/")[0], exist_ok=True)
            self._fs.put_file(str(path), remote)
        whole = set(self.names())
        for name in self._folders():
            if name < checkpoint.name and name not in whole:
                self.remove(name)

    def download(self, name: str, folder: Path) -> None:
        """Copy the manifest and the files that it lists."""
        try:
            data = self._fs.cat_file(f"{self._root}/{name}/{NAME}")
            (folder / NAME).write_bytes(data)
            for file in manifest_files(json.loads(data)):
                (folder / file).parent.mkdir(parents=True, exist_ok=True)
                self._fs.get_file(f"{self._root}/{name}/{file}", str(folder / file))
        except FileNotFoundError as error:
            raise ArtifactError(f"a file of it is missing ({error})") from error
        except ValueError as error:
            raise ArtifactError(f"its {NAME} is no JSON ({error})") from error

    def remove(self, name: str) -> None:
        """Remove the manifest, then the rest."""
        folder = f"{self._root}/{name}"
        if self._fs.exists(f"{folder}/{NAME}"):
            self._fs.rm_file(f"{folder}/{NAME}")
        if self._fs.exists(folder):
            self._fs.rm(folder, recursive=True)
