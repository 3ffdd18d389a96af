"""Checkpoints as versions of one artifact of Weights & Biases, named STAGE-KEY; its metadata say which is which.

The key comes from the environment (WANDB_API_KEY) or from `wandb login`, never from params.yaml.
"""

import importlib.util
import tempfile
from pathlib import Path
from typing import Any

from darkroom.errors import DarkroomError

TYPE = "checkpoint"


class WandbArtifacts:
    """A store in a project of Weights & Biases.

    wandb sends with each run what it finds of the machine: host, user, paths, packages, git remote. All of it is off.

    Args:
        project: PROJECT, or ENTITY/PROJECT.
        key: the name of the training.
    """

    def __init__(self, project: str, key: str) -> None:
        if importlib.util.find_spec("wandb") is None:
            raise DarkroomError(f"wandb:{project} needs wandb: install it with `pip install 'darkroom[wandb]'`.")
        self._project, self._key = project, key

    def _versions(self) -> list[tuple[str, Any]]:
        """Return (name, artifact) of all versions that are whole on the server, oldest first."""
        import wandb

        api = wandb.Api()
        path = f"{self._project}/{self._key}"
        if not api.artifact_collection_exists(path, TYPE):
            return []
        versions = [v for v in api.artifacts(TYPE, path) if v.state == "COMMITTED" and "images" in v.metadata]
        named = [(f"images-{version.metadata['images']:012d}", version) for version in versions]
        return sorted(named, key=lambda pair: (pair[0], int(pair[1].version.removeprefix("v"))))

    def names(self) -> list[str]:
        """Return the checkpoints that have a whole version, oldest first."""
        return sorted({name for name, _ in self._versions()})

    def upload(self, checkpoint: Path) -> None:
        """Log the folder as a new version, and wait until the server has all of it."""
        import wandb

        artifact = wandb.Artifact(self._key, type=TYPE, metadata={"images": int(checkpoint.name.rpartition("-")[2])})
        # Immutable: read where it lies. The other policy copies everything first.
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
                reinit="create_new",  # a tracker's run in this process stays what it is
                mode="online",  # trackers are offline by default; this was asked for by name
                dir=folder,
                settings=wandb.Settings(
                    console="off",
                    disable_code=True,
                    disable_git=True,
                    host="-",
                    program="-",
                    silent=True,
                    x_disable_machine_info=True,
                    x_disable_meta=True,
                    x_disable_stats=True,
                    x_executable="-",
                    x_save_requirements=False,
                ),
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
        for found, version in self._versions():
            if found == name:
                version.delete(delete_aliases=True)
