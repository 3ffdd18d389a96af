"""Checkpoints in a repository of the Hugging Face Hub: STAGE-KEY/images-N/, one commit each.

The token comes from the environment (HF_TOKEN) or from `hf auth login`, never from params.yaml.
"""

import shutil
from pathlib import Path

from huggingface_hub import HfApi
from huggingface_hub.errors import RepositoryNotFoundError

from darkroom.artifacts.manifest import NAME, ArtifactError
from darkroom.errors import DarkroomError
from darkroom.training.remote.place import CHECKPOINT


class Hub:
    """A store in a model repository, which is made where it is not there, and then private.

    Args:
        repository: OWNER/NAME.
        key: the name of the training.
    """

    def __init__(self, repository: str, key: str) -> None:
        self._repository, self._key = repository, key
        self._api = HfApi()
        self._made = False

    def names(self) -> list[str]:
        """Return the checkpoints of the newest commit, oldest first."""
        try:
            files = set(self._api.list_repo_files(self._repository))
        except RepositoryNotFoundError as error:
            raise DarkroomError(
                f"the Hub shows no repository {self._repository}: make it (`hf repos create {self._repository} "
                "--private`), or give a token that may read it (HF_TOKEN, or `hf auth login`)."
            ) from error
        prefix = f"{self._key}/"
        names = {file.removeprefix(prefix).partition("/")[0] for file in files if file.startswith(prefix)}
        return sorted(n for n in names if CHECKPOINT.fullmatch(n) and f"{prefix}{n}/{NAME}" in files)

    def upload(self, checkpoint: Path) -> None:
        """Add the folder in one commit: all of it is seen, or nothing."""
        if not self._made:
            self._api.create_repo(self._repository, private=True, exist_ok=True)
            self._made = True
        self._api.upload_folder(
            repo_id=self._repository,
            folder_path=checkpoint,
            path_in_repo=f"{self._key}/{checkpoint.name}",
            commit_message=f"{self._key}: {checkpoint.name}",
        )

    def download(self, name: str, folder: Path) -> None:
        """Fetch the folder, past the Hub's own cache, which would keep a second copy."""
        beside = folder / ".download"
        path = f"{self._key}/{name}"
        self._api.snapshot_download(self._repository, allow_patterns=[f"{path}/*"], local_dir=beside)
        if not (beside / path).is_dir():
            raise ArtifactError("its files are gone")
        for file in list((beside / path).iterdir()):
            file.rename(folder / file.name)
        shutil.rmtree(beside)

    def remove(self, name: str) -> None:
        """Remove the folder in one commit; the Hub keeps it in the repository's history."""
        self._api.delete_folder(
            f"{self._key}/{name}", self._repository, commit_message=f"{self._key}: {name} is replaced by newer ones"
        )
