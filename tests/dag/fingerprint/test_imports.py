"""What modules load, beside grimp, which reads imports independently."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import grimp
import pytest

from darkroom.dag.fingerprint.imports import Sources
from darkroom.errors import DarkroomError

SRC = Path(__file__).resolve().parents[3] / "src"


def modules() -> list[str]:
    files = [path.relative_to(SRC).with_suffix("") for path in sorted(SRC.glob("darkroom/**/*.py"))]
    return [".".join(file.parts).removesuffix(".__init__") for file in files]


def test_each_module_imports_what_grimp_finds() -> None:
    graph = grimp.build_graph("darkroom", cache_dir=None, exclude_type_checking_imports=True)
    sources = Sources(SRC)
    for module in modules():
        source = sources.source(module)
        assert source is not None
        found = {name for each in source.imported for name in (each, each.rpartition(".")[0]) if sources.source(name)}
        wanted = graph.find_modules_directly_imported_by(module)
        assert wanted <= found, module
        packages = {name for name in found - wanted if (SRC.joinpath(*name.split(".")) / "__init__.py").is_file()}
        # Beside `from darkroom.room import module`, grimp does not count the room itself.
        assert found - wanted == packages, module


def write(folder: Path, files: dict[str, str]) -> Sources:
    for name, text in {"__init__": "", "room/__init__": "", **files}.items():
        path = folder / "darkroom" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return Sources(folder)


def test_a_closure_follows_imports_everywhere_but_into_what_has_no_effect(tmp_path: Path) -> None:
    sources = write(
        tmp_path,
        {
            "start": "def f():\n  try:\n    with a:\n      from darkroom.room import one\n"
            "  except E:\n    import darkroom.room.two\n",
            "room/__init__": "SIZE = 1",
            "room/one": "from .three import x\nfrom ..quiet import y\nimport torch",
            "room/two": "match a:\n  case 1:\n    from darkroom import four",
            "room/three": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n  import darkroom.never\n"
            "else:\n  import darkroom.ever",
            "quiet": "# No effect on any output: prints\nimport darkroom.never",
            **dict.fromkeys(("four", "ever", "never"), "x = 1"),
        },
    )
    found = sources.closure(["darkroom.start"]).modules
    room = {"darkroom.room", *(f"darkroom.room.{name}" for name in ("one", "two", "three"))}
    assert found == {"darkroom.start", "darkroom.four", "darkroom.ever", *room}


def test_a_marker_needs_a_reason(tmp_path: Path) -> None:
    sources = write(tmp_path, {"one": "# No effect on any output:\n", "two": "x = 1 # No effect on any output: inline"})
    assert sources.closure(["darkroom.one", "darkroom.two"]).modules >= {"darkroom.one", "darkroom.two"}


@pytest.mark.parametrize("stage", ["ingest", "catalog", "encode_latents"])
def test_what_a_url_is_counts_though_fetching_it_does_not(stage: str) -> None:
    found = Sources(SRC).closure([f"darkroom.stages.{stage}"]).modules
    assert "darkroom.remote" in found and "darkroom.data.remote" not in found


TABLE = "Kinds(chosen_by='x.kind', package='darkroom', parts={'net': 'x', 'other': 'y'}, kinds={'a': ['two:A', None]})"


@pytest.mark.parametrize("kinds", ["made()", "{'a': ['two:A']}", "{'a': 'two:A'}"])
def test_a_table_of_kinds_is_of_literals_with_a_place_for_each_part(tmp_path: Path, kinds: str) -> None:
    table = f"T = Kinds(chosen_by='x.kind', package='darkroom', parts={{'net': 'x', 'other': 'y'}}, kinds={kinds})"
    sources = write(tmp_path, {"one": f"from darkroom.kinds import Kinds\n\n{table}\n"})
    with pytest.raises(DarkroomError, match=r"one\.py, line 3: the arguments of a table of kinds are literals"):
        sources.closure(["darkroom.one"])


@pytest.mark.parametrize("text", [f"class A:\n  T = kinds.{TABLE}", f"print({TABLE})"])
def test_a_table_that_would_not_be_read_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(DarkroomError, match="a table of kinds is assigned to a name outside of classes and functions"):
        write(tmp_path, {"one": text}).closure(["darkroom.one"])


@pytest.mark.parametrize("prefix", ["", "kinds."])
@pytest.mark.parametrize("where", ["one", "three"])
def test_only_the_parts_that_are_loaded_count(tmp_path: Path, prefix: str, where: str) -> None:
    """In the table's own module, and where it is imported."""
    use = 'def f(kind):\n  return T.load("net", kind)\n'
    modules = {"one": f"T = {prefix}{TABLE}\n", "three": "from darkroom.one import T\n"}
    modules[where] += use
    tables = write(tmp_path, modules).closure(["darkroom.three"]).tables
    assert [(module, table.name, table.places) for module, table in tables] == [
        ("darkroom.one", "x", {"a": "darkroom.two:A"})
    ]


def test_a_part_that_no_table_has_is_refused(tmp_path: Path) -> None:
    sources = write(tmp_path, {"one": f"T = {TABLE}\nT.load(\"nte\", 'a')\n"})
    with pytest.raises(DarkroomError, match="T has no part `nte`"):
        sources.closure(["darkroom.one"])


def test_what_is_not_for_a_type_checker_counts(tmp_path: Path) -> None:
    sources = write(tmp_path, {"one": "if not TYPE_CHECKING:\n  import darkroom.two", "two": "x = 1"})
    assert "darkroom.two" in sources.closure(["darkroom.one"]).modules


SCRIPT = """
import json, sys
from pathlib import Path
from darkroom.dag.fingerprint.imports import Sources
sys.stdout.write(json.dumps(Sources(Path(sys.argv[1])).hashes(sys.argv[2:])))
"""


@pytest.mark.parametrize("python", ["python3.11", "python3.12", "python3.13"])
def test_the_hashes_are_the_same_on_every_python(python: str) -> None:
    program = shutil.which(python)
    if program is None or subprocess.run([program, "-c", ""], capture_output=True).returncode:
        pytest.skip(f"{python} is not installed")
    done = subprocess.run(
        [program, "-B", "-c", SCRIPT, str(SRC), *modules()],
        env=os.environ | {"PYTHONPATH": str(SRC)},
        capture_output=True,
        text=True,
    )
    assert json.loads(done.stdout) == Sources(SRC).hashes(modules()), done.stderr
