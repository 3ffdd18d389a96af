import os
import subprocess
import sys
from pathlib import Path

import fsspec
import pytest

from darkroom.artifacts.manifest import read_manifest
from darkroom.cli import main
from darkroom.data.layout import SHARDS
from data.making_tars import img2dataset
from tools.verify.making import ROOT, catalogue, configure, index_in_place, project, record, rows_of, said


def test_it_answers_without_torch(made: Path) -> None:
    script = (
        "import sys; from darkroom.cli import main; codes = [main(['verify']), main(['data'])];"
        "sys.exit(3 if 'torch' in sys.modules else any(codes))"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    assert subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True).returncode == 0


def test_a_flipped_bit_is_found_in_any_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the first byte and of the last."""
    monkeypatch.chdir(tmp_path)
    project(only=(0, 9))
    record()
    missed = []
    for path in sorted(path for path in SHARDS.rglob("*") if path.is_file()):
        content = bytearray(path.read_bytes())
        for at in (0, len(content) - 1):
            content[at] ^= 4
            replace(path, bytes(content))
            code, text = said("verify")
            content[at] ^= 4
            replace(path, bytes(content))
            if code != 1 or f"{path}: is not what dvc.lock records" not in text:
                missed.append((path, at, text))
    assert missed == []
    assert said("verify")[0] == 0


def replace(path: Path, content: bytes) -> None:
    """Write a file anew: the old one may be an object of DVC's cache."""
    path.unlink()
    path.write_bytes(content)


def test_outputs_of_every_stage_or_of_a_part_are_checked(made: Path) -> None:
    Path("models").mkdir()
    Path("models/x").write_text("weights")
    record(train={"cmd": "true", "outs": ["models/x"]})
    code, text = said("verify")
    assert code == 0 and text.splitlines()[-1] == "outputs: 3 of dvc.lock: ok"
    replace(Path("models/x"), b"Weights")
    (SHARDS / "first/notes.txt").touch()
    code, text = said("verify")
    assert code == 1 and "outputs: 3 of dvc.lock: 2 errors" in text
    assert "  models/x: is not what dvc.lock records: delete it and restore it with `dvc checkout models/x`" in text
    assert "  data/shards/first/notes.txt: belongs to no output, and nothing reads it: delete it." in text
    assert "outputs: 1 of dvc.lock: 1 error" in said("verify", "first")[1]
    assert said("verify", "second")[0] == 0


def test_a_part_that_nobody_knows(made: Path, capsys: pytest.CaptureFixture) -> None:
    assert main(["verify", "frist"]) == 1
    assert "params.yaml has no part `frist`; did you mean `first`?" in capsys.readouterr().err


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Go to a project whose params.yaml has one part, and return a folder of img2dataset beside it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DVC_ROOT", str(tmp_path))
    configure("first")
    img2dataset(Path("laion"), shards=2, rows=12)
    return Path("laion")


def damage(path: Path, at: int, data: bytes) -> None:
    content = bytearray(path.read_bytes())
    content[at : at + len(data)] = data
    path.write_bytes(content)


def test_a_part_that_is_indexed_in_place(elsewhere: Path) -> None:
    index_in_place("first", elsewhere)
    code, text = said("verify")
    assert code == 0 and text.splitlines()[-1] == "first: 2 tars indexed in place: ok"
    tar = elsewhere / "00001.tar"
    content = tar.read_bytes()
    row = next(row for row in rows_of("first", "test") if row["key"].startswith("00001"))
    damage(tar, row["offset"] + 40, b"\0\0\0")
    code, text = said("verify")
    assert code == 1 and "00000.tar" not in text
    assert f"{tar}: is damaged: its sha256 differs from the manifest: it changed since it was indexed" in text
    tar.write_bytes(content[:-1])
    assert f"{tar}: is damaged" in said("verify")[1]
    tar.unlink()
    assert f"{tar}: is missing: it changed since it was indexed; put the old file back" in said("verify")[1]
    (SHARDS / "first/manifest.json").write_text("{")  # an output of DVC, which is reported as such
    assert said("verify")[0] == 0


def test_remote_tars_are_not_read(elsewhere: Path) -> None:
    memory = fsspec.filesystem("memory")
    for path in elsewhere.glob("*.tar"):
        memory.pipe_file(f"/laion/{path.name}", path.read_bytes())
    try:
        index_in_place("first", None, url="memory://laion/{00000..00001}.tar")
        memory.rm_file("/laion/00000.tar")
        code, text = said("verify")
        assert code == 0 and "2 remote tars not read: they are checked when fetched" in text
    finally:
        memory.rm("/laion", recursive=True)


def test_what_is_indexed_in_place_is_shown_once(elsewhere: Path) -> None:
    index_in_place("first", elsewhere)
    code, text = said("data")
    assert code == 0 and "read in place, not copied: first" in text
    catalogue("first")
    (part,) = read_manifest(Path("data/catalog"), "catalog")["parts"]
    assert (part["shards"], part["bytes"]) == (2, sum(path.stat().st_size for path in elsewhere.glob("*.tar")))
    assert said("verify")[0] == 0
