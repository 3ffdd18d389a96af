"""What definitions reach, beside grimp, which reads imports independently."""

import json
import os
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import grimp
import pytest

from darkroom.dag.fingerprint.following import LOADED, WHOLE, Closure, Place, Sources
from darkroom.dag.fingerprint.stages import roots
from darkroom.dag.stages import STAGES
from darkroom.errors import DarkroomError

SRC = Path(__file__).resolve().parents[3] / "src"
SOURCES = Sources(SRC)
STAGE_NAMES = [stage for stage in STAGES if stage != "code"]


def modules() -> list[str]:
    files = [path.relative_to(SRC).with_suffix("") for path in sorted(SRC.glob("darkroom/**/*.py"))]
    return [".".join(file.parts).removesuffix(".__init__") for file in files]


@cache
def of_stages() -> list[str]:
    """Return the modules that stages load, without those marked as without effect."""
    return sorted({module for stage in STAGE_NAMES for module, _ in SOURCES.closure(roots(stage)).places})


def test_each_module_imports_what_grimp_finds() -> None:
    graph = grimp.build_graph("darkroom", cache_dir=None, exclude_type_checking_imports=True)
    for name in of_stages():
        module = SOURCES.module(name)
        assert module is not None
        found = set(module.loads)
        for made in module.statements:
            found |= {loaded for each in module.definitions(made).values() for _, _, loaded in each.imports}
        found = {each for loaded in found for each in (loaded, loaded.rpartition(".")[0])}
        found = {each for each in found if each.partition(".")[0] == "darkroom" and SOURCES.module(each)}
        wanted = graph.find_modules_directly_imported_by(name)
        assert wanted <= found, name
        packages = {each for each in found - wanted if (SRC.joinpath(*each.split(".")) / "__init__.py").is_file()}
        # Beside `from darkroom.room import module`, grimp does not count the room itself.
        assert found - wanted == packages, name


def write(folder: Path, files: dict[str, str]) -> Sources:
    for name, text in {"__init__": "", "room/__init__": "", **files}.items():
        path = folder / "darkroom" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return Sources(folder)


def reached(sources: Sources, *places: Place) -> set[str]:
    """Return the definitions that others reach, as MODULE:NAME without the package."""
    found = sources.closure(places or [("darkroom.start", "f")]).places
    return {f"{module.removeprefix('darkroom.')}:{name}" for module, name in found if name not in (LOADED, WHOLE)}


REACHES = {
    "a name": ("from darkroom.other import g, h\ndef f(): return g()", {"other:g"}),
    "a name under another one": ("from darkroom.other import g as name\ndef f(): return name()", {"other:g"}),
    "a relative import": ("from .other import g\ndef f(): return g()", {"other:g"}),
    "an attribute of a module": ("from darkroom import other\ndef f(): return other.g()", {"other:g"}),
    "a module by its full name": ("import darkroom.other\ndef f(): return darkroom.other.g()", {"other:g"}),
    "a module under another name": ("import darkroom.other as o\ndef f(): return o.g()", {"other:g"}),
    "a local import": ("def f():\n  from darkroom.other import g\n  return g()", {"other:g"}),
    "a local import of a module": ("def f():\n  from darkroom import other\n  return [other.g]", {"other:g"}),
    "a re-export": ("from darkroom.room import name\ndef f(): return name", {"other:h"}),
    "a module as a value": (
        "from darkroom import other\ndef f(): return getattr(other, 'g')",
        {"other:g", "other:h", "other:Base", "other:SIZE"},
    ),
    "a base": ("from darkroom.other import Base\nclass f(Base): pass", {"other:Base", "other:SIZE"}),
    "an annotation of a class": ("from darkroom.other import g\nclass f:\n  x: g = 1", {"other:g"}),
    "an annotation of a class as a text": ("from darkroom.other import g\nclass f:\n  x: 'list[g]' = 1", {"other:g"}),
    "an annotation of a function": ("from darkroom.other import g\ndef f(a: g) -> g:\n  b: g = 1", set()),
    "a decorator": ("from darkroom import other\n@other.g\ndef f(): pass", {"other:g"}),
    "a default": ("from darkroom.other import SIZE\ndef f(size=SIZE): pass", {"other:SIZE"}),
    "a method": ("from darkroom.other import g\nclass f:\n  def method(self): return g()", {"other:g"}),
    "a binding": ("from darkroom.other import g\nTABLE = {1: g}\ndef f(): return TABLE", {"start:TABLE", "other:g"}),
    "one of several bindings": ("from darkroom.other import g, h\nA = g\nB, C = h, 1\nf = C", {"start:C", "other:h"}),
    "what a binding is changed by": ("from darkroom.other import g\nf = 1\nf += g", {"other:g"}),
    "what runs when the module is loaded": ("from darkroom.other import g\ng()\ndef f(): pass", {"other:g"}),
    "what a decorator of ours may keep": (
        "from darkroom.other import g\ndef f(): pass\n@g\ndef kept(): pass",
        {"other:g", "start:kept"},
    ),
    "what a decorator of others cannot keep": ("from functools import cache\ndef f(): pass\n@cache\ndef k(): 1", set()),
    "a name in `try`": (
        "try:\n  from darkroom.other import g\nexcept ImportError:\n  g = None\ndef f(): return g",
        {"other:g"},
    ),
    "a global": ("STATE = 1\ndef f():\n  global STATE\n  STATE = 2", {"start:STATE"}),
    "nothing for type checkers": (
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n  from darkroom.other import g\nclass f:\n  x: g",
        set(),
    ),
    "what is not for type checkers": (
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n  pass\nelse:\n  from darkroom.other import g\nf = g",
        {"other:g"},
    ),
    "nothing in a module without effect": ("from darkroom.quiet import q, g\ndef f(): return q(g)", set()),
}
OTHER = {
    "other": "SIZE = 3\ndef g(): pass\ndef h(): pass\nclass Base:\n  size = SIZE\n",
    "room/__init__": "from ..other import h as name",
    "quiet": "# No effect on any output: prints\nfrom darkroom.other import g\ndef q(): return g()",
}


@pytest.mark.parametrize("story", REACHES)
def test_a_definition_reaches(tmp_path: Path, story: str) -> None:
    text, found = REACHES[story]
    assert reached(write(tmp_path, {**OTHER, "start": text})) - {"start:f"} == found


def test_loading_a_module_reaches_what_it_and_its_imports_run(tmp_path: Path) -> None:
    sources = write(
        tmp_path,
        {
            "start": "import darkroom.room.one\ndef f(): pass\ndef unused():\n  import darkroom.never",
            "room/__init__": "from darkroom.four import run\nrun(1)",
            "room/one": "from darkroom.quiet import x\nONE = 1",
            "four": "def run(x): pass\ndef other(): pass",
            "quiet": "# No effect on any weight: prints\nimport darkroom.noisy\nprint(1)",
            "noisy": "import darkroom.quiet\nimport darkroom.four\nprint(darkroom.four.other())\nONE = 1",
        },
    )
    assert reached(sources) == {"start:f", "four:run"}, "what a module without effect loads is hashed, not followed"
    found = sources.hashes(sources.closure([("darkroom.start", "f")]).places)
    assert {module: set(names) for module, names in found.items()} == {
        "darkroom.start": {"f"},
        "darkroom.room": {""},
        "darkroom.four": {"run"},
        "darkroom.noisy": {""},
    }


def test_a_hash_says_what_each_name_means(tmp_path: Path) -> None:
    files = {
        "start": "from darkroom.room import one\nfrom torch import x, y\ndef f(): return one(x)",
        "room/__init__": "from darkroom.four import one",
        "four": "def one(): pass\ntwo = one",
    }

    def of(**changed: str) -> dict[str, dict[str, str]]:
        sources = write(tmp_path, files | changed)
        return sources.hashes([("darkroom.start", "f")])

    before = of()
    assert of(start=files["start"].replace("import x, y", "import x, z")) == before
    assert of(start=files["start"].replace("import x, y", "import z as x, y")) != before
    assert of(**{"room/__init__": "from darkroom.four import two as one"}) != before


REFUSED = {
    "import *": "from darkroom.other import *\ndef f(): pass",
    "globals": "def f(): return globals()['g']",
    "eval": "def f(): return eval('g()')",
    "f.__doc__": "def f(): return f.__doc__",
    "exec": "def f(): exec('g()')",
    "import_module": "from importlib import import_module\ndef f(): return import_module('darkroom.other')",
    "importlib.import_module": "import importlib\ndef f(): return importlib.import_module('darkroom.other')",
    "__getattr__": "def f(): pass\ndef __getattr__(name): pass",
    "metaclass": "class f(metaclass=M): pass",
    "__init_subclass__": "class f:\n  def __init_subclass__(cls): pass",
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_followed_is_refused(tmp_path: Path, what: str) -> None:
    line = next(number for number, text in enumerate(REFUSED[what].splitlines(), 1) if what.split(".")[-1][:6] in text)
    message = rf"start\.py, line \d: `{re.escape(what)}` may reach code that the fingerprint"
    with pytest.raises(DarkroomError, match=message) as error:
        reached(write(tmp_path, {**OTHER, "start": REFUSED[what]}))
    assert int(re.findall(r"line (\d)", str(error.value))[0]) >= line


def test_a_mark_needs_a_reason(tmp_path: Path) -> None:
    marks = {"one": "# No effect on any output:\nx = 1", "two": "x = 1 # No effect on any output: inline"}
    places = {(f"darkroom.{name}", "x") for name in marks}
    assert sources_closure(write(tmp_path, marks), *places).places >= places


def sources_closure(sources: Sources, *places: Place) -> Closure:
    return sources.closure(places)


@cache
def cut() -> frozenset[str]:
    """Return the marked modules of which a stage would reach something, whichever kinds are chosen."""
    found = frozenset[str]()
    for stage in STAGE_NAMES:
        closure = SOURCES.closure(roots(stage))
        places = {place for _, table in closure.tables for place in table.places.values()}
        chosen = [(module, name) for module, _, name in (place.partition(":") for place in places)]
        found |= closure.cut | SOURCES.closure(chosen).cut
    return found


@pytest.mark.slow
def test_each_mark_cuts_something() -> None:
    """A mark that cuts nothing says nothing: take it out."""
    marked = {name for name in modules() if (module := SOURCES.module(name)) is not None and not module.effect}
    assert marked == cut()


TABLE = "Kinds(chosen_by='x.kind', package='darkroom', parts={'net': 'x', 'other': 'y'}, kinds={'a': {'net': 'two:A'}})"


@pytest.mark.parametrize("kinds", ["made()", "{'a': ['two:A']}", "{'a': 'two:A'}", "{'a': {'nte': 'two:A'}}"])
def test_a_table_of_kinds_is_of_literals_with_a_place_for_each_part(tmp_path: Path, kinds: str) -> None:
    table = f"T = Kinds(chosen_by='x.kind', package='darkroom', parts={{'net': 'x', 'other': 'y'}}, kinds={kinds})"
    sources = write(tmp_path, {"one": f"from darkroom.kinds import Kinds\n\n{table}\n"})
    with pytest.raises(DarkroomError, match=r"one\.py, line 3: the arguments of a table of kinds must be"):
        sources.module("darkroom.one")


@pytest.mark.parametrize("text", [f"class A:\n  T = kinds.{TABLE}", f"print({TABLE})"])
def test_a_table_that_would_not_be_read_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(DarkroomError, match="table of kinds must be assigned to a name outside of classes"):
        write(tmp_path, {"one": text}).module("darkroom.one")


@pytest.mark.parametrize("prefix", ["", "kinds."])
@pytest.mark.parametrize("where", ["one", "three"])
def test_only_the_parts_that_are_loaded_count(tmp_path: Path, prefix: str, where: str) -> None:
    """In the table's own module, and where it is imported."""
    use = 'def f(kind):\n  return T.load("net", kind)\n'
    files = {"one": f"T = {prefix}{TABLE}\n"}
    files["three"] = "from darkroom.one import T\n"
    files[where] += use
    sources = write(tmp_path, files)
    tables = sources.closure([(f"darkroom.{where}", "f")]).tables
    assert [(module, table.name, table.places) for module, table in tables] == [
        ("darkroom.one", "x", {"a": "darkroom.two:A"})
    ]


def test_where_no_parameter_chooses_all_kinds_count(tmp_path: Path) -> None:
    table = "Kinds(package='darkroom', parts={'net': 'x'}, kinds={'a': {'net': 'two:A'}, 'b': {'net': 'two:B'}})"
    files = {"one": f"T = {table}\ndef f(kind):\n  return T.load('net', kind)\n"}
    sources = write(tmp_path, files | {"two": "class A: 1\nclass B: 2\nclass C: 3\n"})
    closure = sources.closure([("darkroom.one", "f")])
    assert {name for module, name in closure.places if module == "darkroom.two" and name} == {"A", "B"}
    assert not closure.tables


@pytest.mark.parametrize(("part", "what"), [('"nte"', "no part `nte`"), ("name", "a part that is not a literal")])
def test_a_part_that_no_table_has_is_refused(tmp_path: Path, part: str, what: str) -> None:
    sources = write(tmp_path, {"one": f"T = {TABLE}\ndef f(name):\n  T.load({part}, 'a')\n"})
    with pytest.raises(DarkroomError, match=rf"one\.py, line 3: T has {what}"):
        sources.closure([("darkroom.one", "f")])


RUNNING = f"python3.{sys.version_info.minor}"
SCRIPT = """
import json, sys
from pathlib import Path
from darkroom.dag.fingerprint.following import WHOLE, Sources
sources = Sources(Path(sys.argv[1]))
places = [(name, WHOLE) for name in sys.argv[2:]]
sys.stdout.write(json.dumps(sources.hashes(sources.closure(places).places)))
"""


@pytest.mark.parametrize("python", sorted({"python3.11", "python3.12", "python3.13"} - {RUNNING}))
def test_the_hashes_are_the_same_on_every_python(python: str) -> None:
    program = shutil.which(python)
    if program is None or subprocess.run([program, "-c", ""], capture_output=True).returncode:
        pytest.skip(f"{python} is not installed")
    names = [name for name in of_stages() if name != "darkroom"]  # no stage calls its functions
    done = subprocess.run(
        [program, "-B", "-c", SCRIPT, str(SRC), *names],
        env=os.environ | {"PYTHONPATH": str(SRC)},
        capture_output=True,
        text=True,
    )
    places = SOURCES.closure([(name, WHOLE) for name in names]).places
    assert json.loads(done.stdout) == SOURCES.hashes(places), done.stderr
