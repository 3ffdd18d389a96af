"""Checkpoints on the Hub, against the signatures of the real client; no network is asked."""

from pathlib import Path
from unittest.mock import MagicMock, create_autospec

import pytest
from huggingface_hub import HfApi
from huggingface_hub.errors import RepositoryNotFoundError

from darkroom.errors import DarkroomError
from darkroom.training.remote import open_place
from training.remote.making import KEY, checkpoint


class Repository:
    """What a repository does with the calls of the client: files by path, and the commits that made them."""

    def __init__(self):
        self.files: dict[str, bytes] | None = None
        self.commits: list[str] = []
        self.api = create_autospec(HfApi, instance=True)
        self.api.create_repo.side_effect = self.create
        self.api.list_repo_files.side_effect = self.list
        self.api.upload_folder.side_effect = self.upload
        self.api.delete_folder.side_effect = self.delete
        self.api.snapshot_download.side_effect = self.download

    def create(self, repo_id, *, private, exist_ok):
        assert repo_id == "owner/name" and private and exist_ok
        self.files = {} if self.files is None else self.files

    def list(self, repo_id):
        if self.files is None:
            raise RepositoryNotFoundError("404", response=MagicMock())
        return [".gitattributes", *self.files]

    def upload(self, *, repo_id, folder_path, path_in_repo, commit_message):
        files = {f"{path_in_repo}/{p.name}": p.read_bytes() for p in Path(folder_path).iterdir()}
        self.files |= files
        self.commits.append(commit_message)

    def delete(self, path_in_repo, repo_id, *, commit_message):
        self.files = {k: v for k, v in self.files.items() if not k.startswith(f"{path_in_repo}/")}
        self.commits.append(commit_message)

    def download(self, repo_id, *, allow_patterns, local_dir):
        assert len(allow_patterns) == 1 and allow_patterns[0].endswith("/*")
        for name, data in self.files.items():
            if name.startswith(allow_patterns[0][:-1]):
                path = Path(local_dir) / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)
        (Path(local_dir) / ".cache").mkdir(parents=True, exist_ok=True)  # as the client does


@pytest.fixture
def repository(monkeypatch):
    made = Repository()
    monkeypatch.setattr("huggingface_hub.HfApi", lambda: made.api)
    return made


def test_the_newest_are_kept_and_fetched(repository, tmp_path):
    place = open_place("hub:owner/name", KEY, 2)
    paths = [place.push(path) or path for path in (checkpoint(tmp_path / "a", images) for images in (8, 16, 24))]
    assert repository.api.create_repo.call_count == 1
    kept = {name.split("/")[1] for name in repository.files}
    assert kept == {"images-000000000016", "images-000000000024"}
    state = tmp_path / "b" / KEY
    found = place.fetch(state)
    assert found == state / "images-000000000024" and [p.name for p in state.iterdir()] == [found.name]
    assert {p.name: p.read_bytes() for p in found.iterdir()} == {p.name: p.read_bytes() for p in paths[-1].iterdir()}
    assert not any(str(tmp_path) in text for text in [*repository.commits, *repository.files])


def test_a_damaged_or_unfinished_one_is_not_taken(repository, tmp_path, capsys):
    place = open_place("hub:owner/name", KEY, 4)
    for images in (8, 16, 24):
        place.push(checkpoint(tmp_path / "a", images))
    repository.files[f"{KEY}/images-000000000016/modules.safetensors"] += b"!"
    del repository.files[f"{KEY}/images-000000000024/manifest.json"]
    assert place.fetch(tmp_path / "b").name == "images-000000000008"
    told = capsys.readouterr().out
    assert "images-000000000016 in hub:owner/name is damaged" in told and "images-000000000024" not in told


def test_other_trainings_in_the_repository_are_left_alone(repository, tmp_path):
    other = "train_generator-fedcba9876543210"
    for key in (other, KEY):
        for images in (8, 16, 24):
            open_place("hub:owner/name", key, 2).push(checkpoint(tmp_path / key, images))
    assert sum(name.startswith(other) for name in repository.files) == 4
    assert open_place("hub:owner/name", "train_generator-0", 2).fetch(tmp_path / "b") is None


def test_a_repository_that_is_not_there_stops_before_training(repository, tmp_path):
    with pytest.raises(DarkroomError, match=r"has no visible repository owner/name: create it.*HF_TOKEN"):
        open_place("hub:owner/name", KEY, 2).fetch(tmp_path)


def test_a_network_that_is_gone_is_told(repository, tmp_path):
    place = open_place("hub:owner/name", KEY, 2)
    place.push(checkpoint(tmp_path / "a", 8))
    before = dict(repository.files)
    repository.api.upload_folder.side_effect = ConnectionError("no route to host")
    with pytest.raises(DarkroomError, match=r"cannot copy images-000000000016 to hub:owner/name.*no route to host"):
        place.push(checkpoint(tmp_path / "a", 16))
    assert repository.files == before
