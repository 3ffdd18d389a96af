"""The code under `deps` in dvc.yaml: what is missing, what is too much, and that mending changes nothing else."""

import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

STAGE = '''"""A stage."""


def run() -> None:
    """Import inside a function."""
    from darkroom.room.used import value

    print(value)
'''
YAML = """# A comment that stays.
stages:
  one:
    cmd: python -m darkroom one
    params:
      - one     # so does this one
    deps:
      - data/in
      - src/darkroom/room/unused.py
      - src/darkroom/schemas/one.py
      - src/darkroom/stages/one.py
    outs:
      - out
"""
MENDED = YAML.replace("unused", "used")


HARMLESS = runpy.run_path(str(ROOT / "workflow/lint/code_deps.py"))["HARMLESS"]


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A package with one stage, which imports one of two modules of a room."""
    package = tmp_path / "src/darkroom"
    harmless = {module.removeprefix("darkroom.").replace(".", "/") for module in HARMLESS} - {"stages"}
    for name in (*harmless, "schemas/one", "room/used", "room/unused"):
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / f"{name}.py").write_text("value = 1\n")
    (package / "stages").mkdir()
    (package / "stages/one.py").write_text(STAGE)
    for room in {".", "stages", *(str(file.parent.relative_to(package)) for file in package.rglob("*.py"))}:
        (package / room / "__init__.py").write_text('"""Only a docstring."""\n')
    (tmp_path / "dvc.yaml").write_text(YAML)
    shutil.copy(ROOT / "workflow/lint/code_deps.py", tmp_path)
    return tmp_path


def lint(clone: Path, *options: str) -> tuple[int, list[str]]:
    """Run the tool; return its exit code and the lines about dvc.yaml."""
    done = subprocess.run(
        [sys.executable, "code_deps.py", *options],
        cwd=clone,
        env={"PYTHONPATH": "src", "PATH": ""},
        capture_output=True,
        text=True,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, [line for line in done.stdout.splitlines() if line.startswith("dvc.yaml: stages")]


def test_missing_and_superfluous_lines_are_named(clone: Path) -> None:
    code, lines = lint(clone)
    assert code == 1
    assert lines == [
        "dvc.yaml: stages.one.deps: + src/darkroom/room/used.py",
        "dvc.yaml: stages.one.deps: - src/darkroom/room/unused.py",
    ]


def test_write_mends_the_list_and_nothing_else(clone: Path) -> None:
    assert lint(clone, "--write")[0] == 0
    assert (clone / "dvc.yaml").read_text() == MENDED
    assert lint(clone) == (0, [])


def test_a_room_may_stand_for_its_files_only_where_all_are_used(clone: Path) -> None:
    listed = MENDED.replace("room/used.py", "room")
    (clone / "dvc.yaml").write_text(listed)
    assert lint(clone)[0] == 1
    (clone / "src/darkroom/room/used.py").write_text("from darkroom.room.unused import value\n")
    assert lint(clone) == (0, [])


def test_code_in_a_package_is_code_of_its_modules(clone: Path) -> None:
    (clone / "dvc.yaml").write_text(MENDED)
    (clone / "src/darkroom/room/__init__.py").write_text("scale = 2\n")
    assert lint(clone) == (1, ["dvc.yaml: stages.one.deps: + src/darkroom/room/__init__.py"])


def test_a_data_file_belongs_to_the_modules_beside_it(clone: Path) -> None:
    (clone / "dvc.yaml").write_text(MENDED)
    (clone / "src/darkroom/room/page.html").write_text("<html>")
    assert lint(clone) == (1, ["dvc.yaml: stages.one.deps: + src/darkroom/room/page.html"])


def test_what_cannot_change_a_byte_is_no_dependency(clone: Path) -> None:
    (clone / "dvc.yaml").write_text(MENDED)
    (clone / "src/darkroom/schemas/one.py").write_text("from darkroom.schemas.run import value\n")
    assert lint(clone) == (0, [])
