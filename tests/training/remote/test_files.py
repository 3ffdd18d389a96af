"""Checkpoints in a folder or behind a URL: what is fetched is whole, of this training, and the newest."""

import json
import shutil

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from darkroom.artifacts.manifest import file_hashes, open_artifact, write_manifest
from darkroom.errors import DarkroomError
from darkroom.training.remote import open_place

KEY = "train_generator-0123456789abcdef"


class Failing(MemoryFileSystem):
    """A file system that is gone after so many files: what a kill in the middle of a copy leaves behind."""

    protocol = "failing"
    left = 10**9

    def put_file(self, lpath, rpath, **kwargs):
        type(self).left -= 1
        if self.left < 0:
            raise OSError("connection lost")
        super().put_file(lpath, rpath, **kwargs)

    def rm_file(self, path):
        if self.left < 0:
            raise OSError("connection lost")
        super().rm_file(path)


fsspec.register_implementation("failing", Failing)


def clear():
    MemoryFileSystem.store.clear()
    MemoryFileSystem.pseudo_dirs[:] = [""]


def checkpoint(folder, images, **more):
    """Write a checkpoint as training/checkpoint.py does."""
    path = folder / f"images-{images:012d}"
    path.mkdir(parents=True)
    (path / "modules.safetensors").write_bytes(f"weights {images}".encode())
    (path / "shards").mkdir()
    (path / "shards" / "0.safetensors").write_bytes(f"shard {images}".encode())
    write_manifest(path, "checkpoint", images=images, files=file_hashes(path), facts={"records": []}, **more)
    return path


def contents(folder):
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.fixture(params=["memory", "folder"])
def where(request, tmp_path):
    clear()
    (tmp_path / "place").mkdir()
    yield {"memory": "memory://bucket/runs", "folder": f"{tmp_path}/place", "file": f"file://{tmp_path}/place"}[
        request.param
    ]
    clear()


@pytest.fixture
def memory():
    clear()
    Failing.left = 10**9
    yield MemoryFileSystem.store
    Failing.left = 10**9
    clear()


def names(where):
    """Return the checkpoint folders that lie in a place, whole or not."""
    fs, base = fsspec.core.url_to_fs(where)
    return sorted({p.split(f"{KEY}/")[1].split("/")[0] for p in fs.find(base) if f"{KEY}/" in p})


@pytest.mark.parametrize("where", ["memory", "folder", "file"], indirect=True)
def test_what_was_pushed_is_fetched_on_another_machine(where, tmp_path, capsys):
    here, there = tmp_path / "a" / KEY, tmp_path / "b" / KEY
    path = checkpoint(here, 8)
    open_place(where, KEY, 2).push(path)
    found = open_place(where, KEY, 2).fetch(there)
    assert found == there / "images-000000000008" and contents(found) == contents(path)
    open_artifact(found, "checkpoint")
    assert [p.name for p in there.iterdir()] == [found.name]  # no temporary folder is left
    assert f"fetched checkpoint images-000000000008 from {where}" in capsys.readouterr().out


def test_the_newest_are_kept(where, tmp_path):
    place = open_place(where, KEY, 3)
    for images in (8, 16, 24, 32, 1_000_000_000_000, 40):
        place.push(checkpoint(tmp_path / KEY, images))
    assert names(where) == [f"images-{n:012d}" for n in (32, 40)] + ["images-1000000000000"]


def test_one_is_never_all_that_is_kept(where, tmp_path):
    place = open_place(where, KEY, 1)
    for images in (8, 16, 24):
        place.push(checkpoint(tmp_path / KEY, images))
    assert len(names(where)) == 2


def test_another_training_finds_nothing(where, tmp_path, capsys):
    open_place(where, KEY, 2).push(checkpoint(tmp_path / "a" / KEY, 8))
    other = "train_generator-fedcba9876543210"
    assert open_place(where, other, 2).fetch(tmp_path / "b" / other) is None
    assert f"found no checkpoint of {other} in {where}" in capsys.readouterr().out


def test_a_second_push_of_the_same_images_replaces_the_first(where, tmp_path):
    place = open_place(where, KEY, 2)
    place.push(checkpoint(tmp_path / "a", 8, extra="file"))
    (tmp_path / "b").mkdir()
    second = checkpoint(tmp_path / "b", 8)
    place.push(second)
    assert contents(place.fetch(tmp_path / "c")) == contents(second)


@pytest.mark.parametrize("files", [0, 1, 2])
def test_a_copy_that_was_killed_is_not_taken_and_is_swept_later(memory, tmp_path, files, capsys):
    """Killed before the first, second and third of three files, the manifest the last of them."""
    place = open_place("failing://bucket", KEY, 2)
    place.push(checkpoint(tmp_path / "a", 8))
    Failing.left = files
    with pytest.raises(DarkroomError, match=r"cannot copy images-000000000016 to failing://bucket.*connection lost"):
        place.push(checkpoint(tmp_path / "a", 16))
    assert sum("images-000000000016" in path for path in memory) == files
    Failing.left = 10**9
    found = open_place("failing://bucket", KEY, 2).fetch(tmp_path / "b")
    assert found.name == "images-000000000008" and "damaged" not in capsys.readouterr().out
    place.push(checkpoint(tmp_path / "a", 24))
    assert names("failing://bucket") == ["images-000000000008", "images-000000000024"]


@pytest.mark.parametrize("files", [0, 1, 2])
def test_a_replacement_that_was_killed_leaves_no_mixture(memory, tmp_path, files):
    """The same images again, as after a resume: the manifest of the first goes before its files are replaced."""
    place = open_place("failing://bucket", KEY, 2)
    place.push(checkpoint(tmp_path / "a", 8))
    place.push(checkpoint(tmp_path / "a", 16))
    Failing.left = files
    with pytest.raises(DarkroomError):
        place.push(checkpoint(tmp_path / "b", 16, again=True))
    assert not any(path.endswith("images-000000000016/manifest.json") for path in memory)
    assert open_place("failing://bucket", KEY, 2).fetch(tmp_path / "c").name == "images-000000000008"


def test_a_removal_that_was_killed_leaves_nothing_that_is_taken(memory, tmp_path, monkeypatch):
    """The manifest goes first."""
    place = open_place("failing://bucket", KEY, 2)
    for images in (8, 16):
        place.push(checkpoint(tmp_path / "a", images))

    def lost(self, path, recursive=False, maxdepth=None):
        raise OSError("connection lost")

    monkeypatch.setattr(Failing, "rm", lost)
    with pytest.raises(DarkroomError, match="connection lost"):
        place.push(checkpoint(tmp_path / "a", 24))
    folder = f"failing://bucket/{KEY}/images-000000000008"
    assert f"{folder}/modules.safetensors" in memory and f"{folder}/manifest.json" not in memory


def _flip(path):
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (lambda p: _flip(p / "modules.safetensors"), "modules.safetensors is corrupted"),
        (lambda p: (p / "shards" / "0.safetensors").unlink(), "a checkpoint file is missing"),
        (lambda p: (p / "manifest.json").write_text('{"kind": "chec'), "lists no files"),
        (lambda p: (p / "manifest.json").write_text("[]"), "lists no files"),
        (lambda p: write_manifest(p, "dit", images=16, files={}), "'checkpoint' in format 2 is needed"),
        (lambda p: write_manifest(p, "checkpoint", images=24, files={}), "is for image 24"),
        (lambda p: write_manifest(p, "checkpoint", images=16, files={"../../x": "0"}), "not a file of"),
        (lambda p: write_manifest(p, "checkpoint", images=16, files={"/etc/hostname": "0"}), "not a file of"),
    ],
)
def test_a_damaged_one_is_skipped_and_the_one_before_taken(tmp_path, capsys, damage, sentence):
    place = open_place(str(tmp_path / "place"), KEY, 2)
    for images in (8, 16):
        place.push(checkpoint(tmp_path / "a", images))
    damage(tmp_path / "place" / KEY / "images-000000000016")
    state = tmp_path / "b" / KEY
    assert place.fetch(state).name == "images-000000000008"
    told = capsys.readouterr().out
    assert "checkpoint images-000000000016 in" in told and sentence in told
    assert [p.name for p in state.iterdir()] == ["images-000000000008"]


def test_a_file_is_not_written_outside_of_the_checkpoint(tmp_path):
    """Whoever can write to the place names the files; the name is refused before the file is copied."""
    place = open_place(str(tmp_path / "place"), KEY, 2)
    place.push(checkpoint(tmp_path / "a", 8))
    folder = tmp_path / "place" / KEY / "images-000000000008"
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"]["../outside"] = manifest["files"]["modules.safetensors"]
    (folder / "manifest.json").write_text(json.dumps(manifest))
    shutil.copy(folder / "modules.safetensors", folder.parent / "outside")
    assert place.fetch(tmp_path / "b" / KEY) is None
    assert not list((tmp_path / "b").rglob("outside"))


def test_what_leaves_holds_no_path_and_no_host(memory, tmp_path):
    """Only the files of the checkpoint, byte for byte, under the names of the training and of the images."""
    path = checkpoint(tmp_path / KEY, 8)
    open_place("memory://bucket", KEY, 2).push(path)
    left = {name: bytes(file.getvalue()) for name, file in memory.items()}
    assert left == {f"/bucket/{KEY}/{path.name}/{name}": data for name, data in contents(path).items()}


def test_a_folder_that_is_not_there_stops_and_an_empty_one_does_not(tmp_path, monkeypatch):
    with pytest.raises(DarkroomError, match=r"folder .*nowhere does not exist: mount it, or create it"):
        open_place(str(tmp_path / "nowhere"), KEY, 2).fetch(tmp_path / KEY)
    (tmp_path / "empty").mkdir()
    assert open_place(str(tmp_path / "empty"), KEY, 2).fetch(tmp_path / KEY) is None


def test_a_place_that_cannot_be_reached_stops_with_a_sentence(memory, tmp_path, monkeypatch):
    def lost(self, path, detail=True, **kwargs):
        raise TimeoutError("https://ann:secret@example.org/x?signature=secret took too long")

    monkeypatch.setattr(Failing, "ls", lost)
    place = open_place("failing://bucket", KEY, 2)
    with pytest.raises(DarkroomError, match=r"cannot look for checkpoints.*example.org/x took too long") as caught:
        place.fetch(tmp_path / KEY)
    assert "secret" not in str(caught.value)


def test_a_relative_folder_is_the_main_checkouts(tmp_path, monkeypatch):
    monkeypatch.setenv("DVC_ROOT", str(tmp_path / "main"))
    monkeypatch.chdir(tmp_path)
    open_place("backup", KEY, 2).push(checkpoint(tmp_path / "a", 8))
    assert (tmp_path / "main" / "backup" / KEY / "images-000000000008" / "manifest.json").is_file()


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("nosuch://bucket", "nosuch://bucket cannot be used for checkpoints: Protocol not known"),
        ("s3://key:secret@bucket", "contains a password"),
        ("hub:justaname", "write hub:OWNER/NAME"),
        ("hub:a/b/c", "write hub:OWNER/NAME"),
        ("wandb:", "write wandb:PROJECT|is not installed"),
    ],
)
def test_what_names_no_place_is_a_sentence(text, sentence):
    with pytest.raises(DarkroomError, match=sentence) as caught:
        open_place(text, KEY, 2)
    assert "secret" not in str(caught.value)


def test_nothing_is_a_place():
    assert open_place(None, KEY, 2) is None
