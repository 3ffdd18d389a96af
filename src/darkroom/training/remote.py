"""Copy checkpoints to and from a folder, a URL, a wandb artifact or the Hub.

A training is identified by STAGE-KEY-CODE, where KEY is a hash of its parameters and inputs, and CODE one of its code:
another training, or the same one with other code, never finds its checkpoints. Only the checkpoint folder and the
names STAGE-KEY-CODE and images-N leave the machine; none of them contains a path or a host. Secrets come from the
environment (HF_TOKEN, WANDB_API_KEY) or from the login of each program, never from params.yaml.
"""

# No effect on any output: copies checkpoints elsewhere and back; fetched ones are checked by their hashes

import importlib.util
import json
import os
import re
import shutil
import tempfile
from pathlib import Path
from typing import Any

from fsspec.core import url_to_fs
from fsspec.implementations.local import LocalFileSystem

from darkroom.artifacts.atomic import atomic_folder
from darkroom.artifacts.manifest import NAME, ArtifactError
from darkroom.errors import DarkroomError
from darkroom.remote import library_errors, require_no_password
from darkroom.training.checkpoint import verify

_CHECKPOINT = re.compile(r"images-\d+")


class Place:
    """The checkpoints of one training in a place that params.yaml names.

    Readers of a store see a checkpoint completely or not at all, even if its writer is killed.
    """

    def __init__(self, store: "Files | Hub | WandbArtifacts", text: str, keep: int) -> None:
        self._store, self._text, self._keep = store, text, max(2, keep)

    def push(self, checkpoint: Path) -> None:
        """Copy a checkpoint folder to the store, and only then remove older ones.

        Raises:
            DarkroomError: the store cannot be written; older checkpoints stay. The training can continue.
        """
        with library_errors(f"cannot copy {checkpoint.name} to {self._text} (`run.checkpoints_to`)"):
            self._store.upload(checkpoint)
            for old in self._store.names()[: -self._keep]:
                self._store.remove(old)

    def fetch(self, state: Path) -> Path | None:
        """Fetch the newest complete checkpoint into the folder `state`, and return its path, or None.

        A damaged one is skipped with a message, and the one before it is used. Files are checked against the manifest
        before the checkpoint appears under its name.

        Raises:
            DarkroomError: the store cannot be read; otherwise the training would silently start from image 0.
        """
        action = f"cannot look for checkpoints in {self._text} (`run.checkpoints_from`; leave it empty to skip this)"
        with library_errors(action):
            names = self._store.names()
        for name in reversed(names):
            try:
                with atomic_folder(state / name) as temporary:
                    with library_errors(action):
                        self._store.download(name, temporary)
                    _verify(temporary, name)
            except ArtifactError as error:
                print(f"checkpoint {name} in {self._text} is damaged and was skipped: {error}")
            else:
                print(f"fetched checkpoint {name} from {self._text}")
                return state / name
        print(f"found no checkpoint of {state.name} in {self._text}")
        return None


def open_place(text: str | None, key: str, keep: int) -> Place | None:
    """Return the store that `text` names for one training's checkpoints; None: it names none.

    This makes no network requests, reads or writes. `key` is the name of the training, STAGE-KEY-CODE.

    Raises:
        DarkroomError: `text` names no store, holds a password, or needs a package that is not installed.
    """
    if text is None:
        return None
    kind, _, name = text.partition(":")
    if kind == "hub":
        if not re.fullmatch(r"[\w.-]+/[\w.-]+", name):
            raise DarkroomError(f"{text!r} is not a repository of the Hub: write hub:OWNER/NAME.")
        return Place(Hub(name, key), text, keep)
    if kind == "wandb":
        if not re.fullmatch(r"([\w.-]+/)?[\w.-]+", name):
            raise DarkroomError(f"{text!r} is not a project of wandb: write wandb:PROJECT or wandb:ENTITY/PROJECT.")
        return Place(WandbArtifacts(name, key), text, keep)
    require_no_password(text, "run.checkpoints_to` or `run.checkpoints_from")
    with library_errors(f"{text} cannot be used for checkpoints"):
        return Place(Files(text, key), text, keep)


def _manifest_files(data: bytes) -> list[str]:
    """Return the names of the files that a checkpoint's manifest lists.

    Raises:
        ArtifactError: it lists none, or one outside of the checkpoint; the store may hold anyone's files.
    """
    try:
        names = sorted(json.loads(data)["files"])
    except (ValueError, LookupError, TypeError) as error:
        raise ArtifactError(f"its {NAME} lists no files ({error})") from error
    for name in names:
        if Path(name).is_absolute() or ".." in Path(name).parts or "\\" in name:
            raise ArtifactError(f"its {NAME} names {name!r}, which is not a file of a checkpoint")
    return names


def _verify(folder: Path, name: str) -> None:
    """Check a downloaded checkpoint."""
    images = verify(folder)["images"]
    _manifest_files((folder / NAME).read_bytes())
    if images != int(name.removeprefix("images-")):
        raise ArtifactError(f"its {NAME} is for image {images}")


class Files:
    """A store in any file system that fsspec knows: PLACE/KEY/images-N/, the manifest written last.

    A checkpoint without its manifest does not count. A relative folder is in the main checkout, also for a queued
    experiment, whose own copy is removed afterwards.
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
                # If a disk is not mounted, the training would start from image 0 instead of continuing.
                raise DarkroomError(f"the folder {self._base} does not exist: mount it, or create it.") from None
            return []
        names = [path.rstrip("/").rpartition("/")[2] for path in paths]
        return sorted(name for name in names if _CHECKPOINT.fullmatch(name))

    def names(self) -> list[str]:
        """Return the checkpoints that have a manifest, oldest first."""
        return [name for name in self._folders() if self._fs.exists(f"{self._root}/{name}/{NAME}")]

    def upload(self, checkpoint: Path) -> None:
        """Copy the files, then the manifest, and remove partial copies of older checkpoints."""
        target = f"{self._root}/{checkpoint.name}"
        self.remove(checkpoint.name)
        files = sorted(path for path in checkpoint.rglob("*") if path.is_file() and path != checkpoint / NAME)
        for path in [*files, checkpoint / NAME]:
            remote = f"{target}/{path.relative_to(checkpoint).as_posix()}"
            self._fs.makedirs(remote.rpartition("/")[0], exist_ok=True)
            self._fs.put_file(str(path), remote)
        complete = set(self.names())
        for name in self._folders():
            if name < checkpoint.name and name not in complete:
                self.remove(name)

    def download(self, name: str, folder: Path) -> None:
        """Copy the manifest and the files that it lists."""
        try:
            data = self._fs.cat_file(f"{self._root}/{name}/{NAME}")
            (folder / NAME).write_bytes(data)
            for file in _manifest_files(data):
                (folder / file).parent.mkdir(parents=True, exist_ok=True)
                self._fs.get_file(f"{self._root}/{name}/{file}", str(folder / file))
        except FileNotFoundError as error:
            raise ArtifactError(f"a checkpoint file is missing ({error})") from error

    def remove(self, name: str) -> None:
        """Remove the manifest, then the other files."""
        folder = f"{self._root}/{name}"
        if self._fs.exists(f"{folder}/{NAME}"):
            self._fs.rm_file(f"{folder}/{NAME}")
        if self._fs.exists(folder):
            self._fs.rm(folder, recursive=True)


class Hub:
    """A store in a model repository of the Hugging Face Hub, OWNER/NAME: KEY/images-N/, one commit each.

    A missing repository is created as a private one.
    """

    def __init__(self, repository: str, key: str) -> None:
        from huggingface_hub import HfApi

        self._repository, self._key, self._api = repository, key, HfApi()
        self._is_created = False

    def names(self) -> list[str]:
        """Return the checkpoints of the newest commit, oldest first."""
        from huggingface_hub.errors import RepositoryNotFoundError

        try:
            files = set(self._api.list_repo_files(self._repository))
        except RepositoryNotFoundError as error:
            raise DarkroomError(
                f"the Hub has no visible repository {self._repository}: create it (`hf repos create {self._repository} "
                "--private`), or give a token that may read it (HF_TOKEN, or `hf auth login`)."
            ) from error
        prefix = f"{self._key}/"
        names = {file.removeprefix(prefix).partition("/")[0] for file in files if file.startswith(prefix)}
        return sorted(n for n in names if _CHECKPOINT.fullmatch(n) and f"{prefix}{n}/{NAME}" in files)

    def upload(self, checkpoint: Path) -> None:
        """Add the folder in one commit, so readers see all of it or nothing."""
        if not self._is_created:
            self._api.create_repo(self._repository, private=True, exist_ok=True)
            self._is_created = True
        path = f"{self._key}/{checkpoint.name}"
        self._api.upload_folder(
            repo_id=self._repository, folder_path=checkpoint, path_in_repo=path, commit_message=path.replace("/", ": ")
        )

    def download(self, name: str, folder: Path) -> None:
        """Fetch the folder without the Hub's cache, which would keep a second copy."""
        download, path = folder / ".download", f"{self._key}/{name}"
        self._api.snapshot_download(self._repository, allow_patterns=[f"{path}/*"], local_dir=download)
        if not (download / path).is_dir():
            raise ArtifactError("its files are missing")
        for file in list((download / path).iterdir()):
            file.rename(folder / file.name)
        shutil.rmtree(download)

    def remove(self, name: str) -> None:
        """Remove the folder in one commit; the Hub keeps it in the repository's history."""
        message = f"{self._key}: {name} is replaced by newer ones"
        self._api.delete_folder(f"{self._key}/{name}", self._repository, commit_message=message)


_TYPE = "checkpoint"
_PRIVATE = {  # wandb sends data of the machine with each run: host, user, paths, packages, git remote
    "console": "off",
    "disable_code": True,
    "disable_git": True,
    "host": "-",
    "program": "-",
    "silent": True,
    "x_disable_machine_info": True,
    "x_disable_meta": True,
    "x_disable_stats": True,
    "x_executable": "-",
    "x_save_requirements": False,
}


class WandbArtifacts:
    """A store in a project of Weights & Biases: versions of one artifact, named KEY, identified by metadata.

    The project is PROJECT, or ENTITY/PROJECT.
    """

    def __init__(self, project: str, key: str) -> None:
        if importlib.util.find_spec("wandb") is None:
            raise DarkroomError(f"wandb:{project} needs wandb: install it with `pip install -e '.[wandb]'`.")
        self._project, self._key = project, key

    def _versions(self) -> list[tuple[str, Any]]:
        """Return (name, artifact) of all versions that are complete on the server, oldest first."""
        import wandb

        api, path = wandb.Api(), f"{self._project}/{self._key}"
        if not api.artifact_collection_exists(path, _TYPE):
            return []
        versions = [v for v in api.artifacts(_TYPE, path) if v.state == "COMMITTED" and "images" in v.metadata]
        named = [(f"images-{version.metadata['images']:012d}", version) for version in versions]
        return sorted(named, key=lambda pair: (pair[0], int(pair[1].version.removeprefix("v"))))

    def names(self) -> list[str]:
        """Return the checkpoints that have a complete version, oldest first."""
        return sorted({name for name, _ in self._versions()})

    def upload(self, checkpoint: Path) -> None:
        """Log the folder as a new version, and wait until the server has all of it."""
        import wandb

        artifact = wandb.Artifact(self._key, type=_TYPE, metadata={"images": int(checkpoint.name.rpartition("-")[2])})
        # Immutable: files are read in place. The other policy copies everything first.
        artifact.add_dir(str(checkpoint), skip_cache=True, policy="immutable")
        entity, _, project = self._project.rpartition("/")
        with tempfile.TemporaryDirectory() as folder:
            run = wandb.init(
                entity=entity or None,
                project=project,
                id=self._key,
                name=self._key,
                job_type="checkpoints",
                resume="allow",
                reinit="create_new",  # a tracker's run in this process stays unchanged
                mode="online",  # trackers are offline by default; this store was requested by name
                dir=folder,
                settings=wandb.Settings(**_PRIVATE),
            )
            try:
                run.log_artifact(artifact).wait()
            finally:
                run.finish()

    def download(self, name: str, folder: Path) -> None:
        """Fetch the files of the newest version of that name."""
        version = dict(self._versions())[name]
        version.download(root=str(folder), skip_cache=True)

    def remove(self, name: str) -> None:
        """Delete all versions of that name, on the server."""
        for stored, version in self._versions():
            if stored == name:
                version.delete(delete_aliases=True)
