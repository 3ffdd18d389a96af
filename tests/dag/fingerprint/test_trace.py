"""What a stage runs, observed, is in its fingerprint."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dag.fingerprint.tracing import BODY
from dag.sandbox import Sandbox
from darkroom.dag.fingerprint.following import Sources
from darkroom.dag.fingerprint.modules import Module
from darkroom.dag.fingerprint.stages import Fingerprint, fingerprints, merged, roots
from darkroom.dag.stages import STAGES
from darkroom.params.stage import read_yaml

TRACING = Path(__file__).with_name("tracing.py")
# Data and a training, which runs most of the code; `make test-all` traces all.
QUICK = ("ingest@first", "train_generator")


def definition(module: Module, line: int) -> str:
    """Return the name that the statement in a line of a module makes; "" where it makes none."""
    for name, statements in module.statements.items():
        for each in statements:
            first = min([each.lineno, *(decorator.lineno for decorator in getattr(each, "decorator_list", []))])
            if first <= line <= (each.end_lineno or line):
                return name
    return ""


def is_python(code: str) -> bool:
    """Return whether code is of a module, not of a template."""
    return code.partition(":")[0].endswith(".py")


def missing(sources: Sources, fingerprint: Fingerprint, trace: str) -> list[str]:
    """Return the functions in a trace that a fingerprint lacks.

    Left out are modules without effect and what they call, and what only the loading of a definition calls that is not
    in the fingerprint: the default of a field of a class that is not used.
    """

    def place(code: str) -> tuple[Module, str, str]:
        file, line, name = code.split(":")
        module = sources.module(
            ".".join(Path(file.partition("/src/")[2]).with_suffix("").parts).removesuffix(".__init__")
        )
        assert module is not None
        return module, definition(module, int(line)), name

    def hashed(module: Module, name: str) -> bool:
        return name in {each.partition(".")[0] for each in fingerprint.get(module.name, {})}

    called: dict[str, set[str]] = {}
    for text in trace.splitlines():
        caller, code = text.split("\t")
        called.setdefault(caller, set()).add(code)
    waiting, seen, found = [""], set[str](), set[str]()
    for caller in filter(is_python, called):
        module, made, name = place(caller)
        if name == BODY and module.effect and (not made or hashed(module, made)):
            waiting.append(caller)
    while waiting:
        for code in called.get(waiting.pop(), set()) - seen:
            seen.add(code)
            if not is_python(code):
                waiting.append(code)
                continue
            module, made, name = place(code)
            if name != BODY and module.effect:
                waiting.append(code)
                if not hashed(module, made):
                    found.add(f"{module.name}: {name}")
    return sorted(found)


def untraced(sandbox: Sandbox, names: list[str], out: Path) -> dict[str, list[str]]:
    """Run stages; return for each the functions that ran below its `run` and are not in its fingerprint."""
    out.mkdir()
    shutil.rmtree(sandbox.root / ".darkroom/state", ignore_errors=True)  # nothing is resumed at its end
    done = subprocess.run(
        [sys.executable, TRACING, out, *names],
        cwd=sandbox.root,
        env=sandbox.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-6000:]
    sources, params = Sources(sandbox.root / "src"), read_yaml(sandbox.root / "params.yaml")
    found = {}
    for name in names:
        stage, trace = name.partition("@")[0], (out / name).read_text()
        assert trace, f"nothing of {name} was traced"
        codes = fingerprints([stage], params, sources)
        files = {stage, *(table.name for _, table in sources.closure(roots(stage)).tables)}
        found[name] = missing(sources, merged(codes[file] for file in files), trace)
    return found


def test_what_some_stages_run_is_in_their_fingerprints(fresh: Sandbox, tmp_path: Path) -> None:
    assert untraced(fresh, list(QUICK), tmp_path / "trace") == {name: [] for name in QUICK}


@pytest.mark.slow
def test_what_any_stage_runs_is_in_its_fingerprint(fresh: Sandbox, tmp_path: Path) -> None:
    names = [name for name in fresh.stages() if name not in QUICK and name.partition("@")[0] in STAGES]
    names.remove("code")
    assert untraced(fresh, names, tmp_path / "trace") == {name: [] for name in names}
