"""Each fault of an output or of DVC's cache is found by its bytes, and what is said to do mends it."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from dvc.cli import main as dvc_main

from darkroom.dag.records import BUSY
from darkroom.errors import DarkroomError
from darkroom.tools.verify.outputs import Cache, check_output, recorded_outputs
from darkroom.tools.verify.verify import verify
from darkroom.training.state import md5_file

MODEL, LIST, CARD = Path("models/made"), Path("models/list.txt"), Path("cards/made.json")
MAKE = "mkdir -p models/made/sub cards; for f in a sub/b; do echo $f > models/made/$f; done; echo l > models/list.txt"


@pytest.fixture(scope="session")
def repository(tmp_path_factory):
    """A repository of DVC and git, in which one stage has run, and another one never."""
    folder = tmp_path_factory.mktemp("outputs")
    outs, plots = [str(MODEL), str(LIST)], [{str(CARD): {"cache": False}}]
    later = "mkdir -p models/later; echo 2 > models/later/c"
    stages = {
        "make": {"cmd": f"{MAKE}; echo 1 > {CARD}", "deps": ["source"], "outs": outs, "plots": plots},
        "later": {"cmd": later, "deps": ["source"], "outs": ["models/later"]},
    }
    (folder / "dvc.yaml").write_text(yaml.safe_dump({"stages": stages}))
    (folder / "params.yaml").write_text("{}\n")
    (folder / "source").touch()
    for command in ("git init -q .", "dvc init -q", "dvc repro -q", "git add -A"):
        subprocess.run(command.split(), cwd=folder, check=True)
    return folder


@pytest.fixture
def here(repository, tmp_path, monkeypatch):
    """Go to a copy of the repository."""
    shutil.copytree(repository, tmp_path / "copy", symlinks=True)
    monkeypatch.chdir(tmp_path / "copy")


def run(command):
    """Run a command of DVC, here, where its imports cost nothing."""
    program, *words = command.split()
    assert program == "dvc" and dvc_main([*words, "-q"]) == 0


def problems():
    cache = Cache()
    outputs = [output for output in recorded_outputs() if not cache.never_had(output)]
    return [str(problem) for output in outputs for problem in check_output(output, cache)]


def object_of(path):
    """Return the object of a path, a file or a folder."""
    md5 = {output.path: output.md5 for output in recorded_outputs()}.get(path) or md5_file(path)
    return Path(".dvc/cache/files/md5", md5[:2], md5[2:])


def flip(path):
    """Change a byte, but neither size, time nor mode: as a disk does."""
    status, content = path.stat(), path.read_bytes()
    path.chmod(0o644)
    path.write_bytes(bytes([content[0] ^ 1]) + content[1:])
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    path.chmod(status.st_mode)


def remove(path):
    shutil.rmtree(path) if path.is_dir() else path.unlink()


FAULTS = {
    "a file": (lambda: flip(MODEL / "a"), ["models/made/a: is not what dvc.lock records: delete models/made and "]),
    "an output that is a file": (lambda: flip(LIST), ["models/list.txt: is not what dvc.lock records: delete it and "]),
    "a file that git stores": (lambda: flip(CARD), ["cards/made.json: is not what dvc.lock records: delete it and "]),
    "a missing file": (lambda: remove(MODEL / "sub/b"), ["models/made/sub/b: is missing: delete models/made and "]),
    "a file too many": (lambda: (MODEL / "c").touch(), ["models/made/c: belongs to no output, and nothing reads it: "]),
    "a missing output": (lambda: remove(MODEL), ["models/made: is missing: restore it with `dvc checkout models"]),
    "an object": (lambda: flip(object_of(MODEL / "a")), ["OBJECT: is damaged: the hash of its content differs"]),
    "the list of a folder": (lambda: flip(object_of(MODEL)), ["OBJECT.dir: is damaged: the hash of its content"]),
    "a missing object": (lambda: remove(object_of(MODEL / "a")), ["models/made: is incomplete in DVC's cache (1 of 3"]),
    "a missing list": (lambda: remove(object_of(MODEL)), ["models/made: is incomplete in DVC's cache (1 of 3 "]),
    "an object and its file": (
        lambda: (flip(object_of(MODEL / "a")), flip(MODEL / "a")),
        ["OBJECT: is damaged: the hash of its content differs from its name", "models/made/a: is not what dvc.lock "],
    ),
    "a list and a file": (
        lambda: (flip(object_of(MODEL)), flip(MODEL / "a")),
        ["OBJECT.dir: is damaged: the hash of its", "models/made: is not what dvc.lock records: delete"],
    ),
    "an output and its list": (
        lambda: (remove(object_of(MODEL)), remove(MODEL)),
        ["models/made: is incomplete in DVC's cache", "models/made: is missing: restore it with `dvc fetch make` and "],
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_named_with_what_mends_it(here, fault):
    assert problems() == []
    plant, starts = FAULTS[fault]
    plant()
    found = problems()
    assert len(found) == len(starts), found
    for line, start in zip(found, starts, strict=True):
        line = re.sub(r"^\.dvc/cache/files/md5/../[0-9a-f]{30}", "OBJECT", line)
        assert line.startswith(start) and ("make" in line or "models/made/c" in line), line
    for line in found:  # as a person would: delete what is named, then the last command
        path, text = line.split(":", 1)[0], line.rsplit(": ", 1)[1]
        named = re.search(r"delete (it|models/made)\b", text)
        if named and Path(path if named[1] == "it" else named[1]).exists():
            remove(Path(path if named[1] == "it" else named[1]))
        if commands := re.findall(r"`([^`]*)`", text):
            run(commands[-1])
    assert problems() == []


def test_restoring_from_the_cache_mends_a_file(here):
    flip(MODEL / "a")
    (line,) = problems()
    remove(MODEL)
    run(re.findall(r"`(dvc checkout [^`]*)`", line)[0])
    assert problems() == []


def test_what_has_never_been_made_here_is_no_fault_and_what_is_lost_is_one(here):
    cache, (later,) = Cache(), [output for output in recorded_outputs() if output.stage == "later"]
    remove(Path("models/later"))
    assert check_output(later, cache)[0].remedy.startswith("restore it with `dvc checkout models/later`")
    made = next(output for output in recorded_outputs() if output.path == MODEL)
    equal = later._replace(md5=made.md5)  # as what two trainings leave that are off
    assert cache.never_had(equal) and not cache.never_had(later)
    shutil.rmtree(".dvc/cache/files/md5")
    assert not Cache().never_had(later)
    shutil.rmtree(".dvc/cache/runs")
    assert Cache().never_had(later)


def test_stages_that_are_gone_and_a_damaged_lock(here):
    dvc = yaml.safe_load(Path("dvc.yaml").read_text())
    del dvc["stages"]["later"]
    Path("dvc.yaml").write_text(yaml.safe_dump(dvc))
    assert {output.stage for output in recorded_outputs()} == {"make"}
    lock = Path("dvc.lock")
    lock.write_text(lock.read_text()[:-9])
    with pytest.raises(DarkroomError, match=r"dvc.lock was truncated .*: `darkroom check` restores it"):
        recorded_outputs()


def test_what_a_stage_makes_now_is_not_checked(here, monkeypatch, capsys):
    monkeypatch.setattr("darkroom.tools.verify.verify.read_parts", lambda names: [])
    shutil.rmtree(MODEL)
    assert not verify() and "models/made: is missing" in capsys.readouterr().out
    writer = {"pid": os.getpid(), "cmd": "dvc repro"}
    written = {str(path.absolute()): writer for path in (MODEL, LIST, CARD)}
    BUSY.write_text(json.dumps({"write": written, "read": {}}))
    assert verify() and "not checked, because a running stage writes them: make." in capsys.readouterr().out
