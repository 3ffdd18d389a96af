"""workflow/colour_pictures.py: the package is checked, and its pictures get classes and captions."""

import hashlib
import io
import json
import subprocess
import sys
import tarfile
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "workflow/colour_pictures.py"
EMOJI = [
    {"name": "WAVING HAND", "image": "1f44b.png", "category": "People & Body",
     "skin_variations": {"1F3FB": {"unified": "1F44B-1F3FB", "image": "1f44b-1f3fb.png"}}},
    {"name": "RED HEART", "image": "2764.png", "category": "Symbols"},
    {"name": "NOT DRAWN", "image": "none.png", "category": "Symbols"},
]  # fmt: skip


@pytest.fixture
def script(monkeypatch) -> ModuleType:
    loader = SourceFileLoader("colour_pictures", str(SCRIPT))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    module = module_from_spec(spec_from_loader("colour_pictures", loader))
    loader.exec_module(module)
    return module


@pytest.fixture
def package(tmp_path) -> Path:
    files = {"package/emoji.json": json.dumps(EMOJI).encode(), "package/img/apple/64/1f44b.png": b"another set"}
    files |= {f"package/img/twitter/64/{name}": name.encode() for name in ("1f44b.png", "1f44b-1f3fb.png", "2764.png")}
    with tarfile.open(tmp_path / "package.tgz", "w:gz") as tar:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return tmp_path / "package.tgz"


def test_pictures_get_classes_and_captions(script, package, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(script, "SHA256", hashlib.sha256(package.read_bytes()).hexdigest())
    script.main(tmp_path / "out", package)
    rows = [json.loads(line) for line in (tmp_path / "out/metadata.jsonl").read_text().splitlines()]
    assert [tuple(row.values()) for row in rows] == [
        ("1f44b.png", "People & Body", "waving hand"),
        ("1f44b-1f3fb.png", "People & Body", "waving hand, light skin"),
        ("2764.png", "Symbols", "red heart"),
    ]
    assert (tmp_path / "out/2764.png").read_bytes() == b"2764.png"  # of this set, not of the other


def test_a_table_that_was_cut_short_is_written_again(script, package, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(script, "SHA256", hashlib.sha256(package.read_bytes()).hexdigest())

    def killed(path: Path, text: str) -> None:
        path.write_bytes(text[:60].encode())
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(script.Path, "write_text", killed)
        script.main(tmp_path / "out", package)
    script.main(tmp_path / "out", package)
    assert len((tmp_path / "out/metadata.jsonl").read_text().splitlines()) == 3
    assert len(list((tmp_path / "out").iterdir())) == 4  # three pictures and the table


def test_another_package_is_refused(package, tmp_path) -> None:
    done = subprocess.run([SCRIPT, tmp_path / "out", package], capture_output=True, text=True)
    assert done.returncode == 1 and "its SHA-256 is" in done.stderr and not (tmp_path / "out").exists()


def test_without_npm_it_says_what_to_do(script, monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(script.shutil, "which", lambda name: None)
    with pytest.raises(SystemExit, match=r"npm, which .*is not installed.*PACKAGE.tgz"):
        script.main(tmp_path / "out", None)
