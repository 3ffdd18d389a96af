"""Checkpoints as artifacts of wandb, against a small stand-in: wandb is an extra, and its server is elsewhere.

The last test holds the calls against the real library where it is installed.
"""

import inspect
import shutil
import socket
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from darkroom.errors import DarkroomError
from darkroom.training.remote import WandbArtifacts, open_place
from training.remote.making import KEY, checkpoint


class Server:
    """Projects with artifacts in versions, as far as they are asked for."""

    def __init__(self, folder):
        self.folder, self.collections, self.settings, self.finished, self.count = folder, {}, [], 0, 0
        self.reachable = True

    def module(self) -> ModuleType:
        server = self

        class Artifact:
            def __init__(self, name, type, metadata):
                self.name, self.type, self.metadata, self.path = name, type, metadata, None

            def add_dir(self, local_path, skip_cache, policy):
                assert skip_cache and policy == "immutable"
                self.path = Path(local_path)

        class Version(SimpleNamespace):
            def download(self, root, skip_cache):
                assert skip_cache
                shutil.copytree(self.stored, root, dirs_exist_ok=True)

            def delete(self, delete_aliases):
                assert delete_aliases
                server.collections[self.collection].remove(self)

        class Run:
            def __init__(self, path):
                self.path = path

            def log_artifact(self, artifact):
                def wait():
                    if not server.reachable:
                        raise ConnectionError("no route to host")
                    versions = server.collections.setdefault(f"{self.path}/{artifact.name}", [])
                    stored = server.folder / str(server.count)
                    shutil.copytree(artifact.path, stored)
                    version = Version(
                        stored=stored,
                        version=f"v{server.count}",
                        metadata=artifact.metadata,
                        state="COMMITTED",
                        collection=f"{self.path}/{artifact.name}",
                    )
                    server.count += 1
                    versions.insert(0, version)

                return SimpleNamespace(wait=wait)

            def finish(self):
                server.finished += 1

        def init(entity, project, id, name, job_type, resume, reinit, mode, dir, settings):
            assert (mode, resume, reinit) == ("online", "allow", "create_new") and id == name == KEY
            server.settings.append(settings)
            return Run(f"{entity}/{project}" if entity else project)

        class Api:
            def artifact_collection_exists(self, name, type):
                assert type == "checkpoint"
                return name in server.collections

            def artifacts(self, type_name, name):
                assert type_name == "checkpoint"
                return list(server.collections[name])

        module = ModuleType("wandb")
        module.Artifact, module.Api, module.init, module.Settings = Artifact, Api, init, lambda **given: given
        module.__spec__ = SimpleNamespace()
        return module


@pytest.fixture
def server(tmp_path, monkeypatch):
    made = Server(tmp_path / "server")
    made.folder.mkdir()
    monkeypatch.setitem(sys.modules, "wandb", made.module())
    return made


@pytest.mark.parametrize("project", ["darkroom", "team/darkroom"])
def test_the_newest_are_kept_and_fetched(server, tmp_path, project):
    place = open_place(f"wandb:{project}", KEY, 2)
    paths = [place.push(path) or path for path in (checkpoint(tmp_path / "a", images) for images in (8, 16, 24))]
    assert [v.metadata for v in server.collections[f"{project}/{KEY}"]] == [{"images": 24}, {"images": 16}]
    state = tmp_path / "b" / KEY
    found = place.fetch(state)
    assert found == state / "images-000000000024" and [p.name for p in state.iterdir()] == [found.name]
    assert {p.name: p.read_bytes() for p in found.iterdir()} == {p.name: p.read_bytes() for p in paths[-1].iterdir()}


def test_the_last_version_of_the_same_images_counts_and_all_are_removed(server, tmp_path):
    place = open_place("wandb:darkroom", KEY, 2)
    for turn in ("a", "b"):
        place.push(checkpoint(tmp_path / turn, 8))
    versions = server.collections[f"darkroom/{KEY}"]
    (versions[1].stored / "modules.safetensors").write_bytes(b"older")
    assert place.fetch(tmp_path / "c") is not None
    for images in (16, 24):
        place.push(checkpoint(tmp_path / "a", images))
    assert [v.metadata["images"] for v in server.collections[f"darkroom/{KEY}"]] == [24, 16]


def test_what_is_not_whole_is_not_taken(server, tmp_path, capsys):
    place = open_place("wandb:darkroom", KEY, 4)
    for images in (8, 16, 24):
        place.push(checkpoint(tmp_path / "a", images))
    newest, middle, _ = server.collections[f"darkroom/{KEY}"]
    newest.state = "PENDING"
    (middle.stored / "modules.safetensors").write_bytes(b"other")
    assert place.fetch(tmp_path / "b").name == "images-000000000008"
    told = capsys.readouterr().out
    assert "images-000000000016 in wandb:darkroom is damaged" in told and "images-000000000024" not in told


def test_an_empty_project_has_nothing(server, tmp_path):
    assert open_place("wandb:darkroom", KEY, 2).fetch(tmp_path) is None


def test_nothing_of_the_machine_is_sent(server, tmp_path):
    open_place("wandb:darkroom", KEY, 2).push(checkpoint(tmp_path / "a", 8))
    settings = server.settings[0]
    off = {"x_disable_meta", "x_disable_stats", "x_disable_machine_info", "disable_git", "disable_code"}
    assert all(settings[name] for name in off) and not settings["x_save_requirements"]
    assert settings["console"] == "off" and settings["host"] == settings["program"] == settings["x_executable"] == "-"


def test_a_network_that_is_gone_is_told_and_the_run_ended(server, tmp_path):
    server.reachable = False
    with pytest.raises(DarkroomError, match=r"cannot copy images-000000000008 to wandb:darkroom.*no route to host"):
        open_place("wandb:darkroom", KEY, 2).push(checkpoint(tmp_path / "a", 8))
    assert server.finished == 1


def test_without_wandb_there_is_a_sentence(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(DarkroomError, match=r"wandb:darkroom needs wandb: install it with `pip install"):
        open_place("wandb:darkroom", KEY, 2)


def test_the_real_library_takes_these_calls_and_sends_no_host(tmp_path, monkeypatch):
    """Where wandb is installed. Offline: what a run would send lies in a file instead."""
    wandb = pytest.importorskip("wandb")
    real = wandb.init
    folder = tmp_path / "runs"
    folder.mkdir()
    monkeypatch.setattr(wandb, "init", lambda **given: real(**{**given, "mode": "offline", "dir": str(folder)}))
    monkeypatch.setattr(wandb.Artifact, "wait", lambda self: self)  # which asks the server
    WandbArtifacts("darkroom", KEY).upload(checkpoint(tmp_path / "a", 8))
    sent = b"".join(path.read_bytes() for path in folder.rglob("*.wandb"))
    assert KEY.encode() in sent and b"modules.safetensors" in sent
    host = socket.gethostname().encode()
    assert len(host) < 6 or host not in sent  # a short name may stand there by chance
    assert Path(__file__).name.encode() not in sent and Path(sys.executable).name.encode() not in sent
    inspect.signature(wandb.Api.artifacts).bind(None, "checkpoint", "darkroom/key")
    inspect.signature(wandb.Api.artifact_collection_exists).bind(None, "darkroom/key", "checkpoint")
    inspect.signature(wandb.Artifact.download).bind(None, root="folder", skip_cache=True)
    inspect.signature(wandb.Artifact.delete).bind(None, delete_aliases=True)
