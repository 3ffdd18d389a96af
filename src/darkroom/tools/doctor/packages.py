"""Check Python, the pinned packages, and other programs."""

import importlib
import platform
import shutil
import sys
import tomllib
from collections.abc import Iterator, Sequence
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal, NamedTuple

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

LOCK, PROJECT = Path("requirements.lock"), Path("pyproject.toml")
_SET_UP = "run `make setup`, which makes .venv from requirements.lock, and `source .venv/bin/activate`"
_NAMED = 8  # maximum number of packages that are listed by name


class Finding(NamedTuple):
    """One finding.

    level: `ok`; `note`: information; `fault`: a required component does not work.
    """

    level: Literal["ok", "note", "fault"]
    subject: str  # what was checked
    text: str  # what was found and, where something is wrong, what to do


ok, note, problem = partial(Finding, "ok"), partial(Finding, "note"), partial(Finding, "fault")


def python() -> Iterator[Finding]:
    """Check the version of Python."""
    needed = tomllib.loads(PROJECT.read_text())["project"]["requires-python"] if PROJECT.is_file() else ""
    actual = platform.python_version()
    if SpecifierSet(needed).contains(actual, prereleases=True):
        yield ok("python", f"{actual}, {sys.executable}")
    else:
        yield problem("python", f"{actual} ({sys.executable}), but {needed} is needed: `make PYTHON=python3.12 setup`.")


def installed(name: str) -> str | None:
    """Return the version of a package without importing it; None if it is not installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def pinned(lock: Path = LOCK) -> Iterator[Finding]:
    """Compare the installed packages with the entries of requirements.lock for this platform."""
    if not lock.is_file():
        yield problem("packages", f"{lock} is missing: `git checkout {lock}` restores it.")
        return
    required = [Requirement(text) for line in lock.read_text().splitlines() if (text := line.partition("#")[0].strip())]
    required = [each for each in required if each.marker is None or each.marker.evaluate()]
    current = {each.name: installed(each.name) for each in required}
    missing = [str(each) for each in required if current[each.name] is None]
    other = [str(each) for each in required if (have := current[each.name]) and not each.specifier.contains(have, True)]
    if missing:
        yield problem("packages", f"{len(missing)} of {lock} are missing, {_named(missing)}: {_SET_UP}.")
    if other:
        yield note("packages", f"{len(other)} differ from {_named(other)}, so output bytes may differ: {_SET_UP}.")
    if not missing and not other:
        yield ok("packages", f"{len(required)} of {lock}, all at the pinned version")


def _named(names: Sequence[str]) -> str:
    return f"{', '.join(names[:_NAMED])}{', …' if len(names) > _NAMED else ''}"


def torch_pair() -> Iterator[Finding]:
    """Call an operator of torchvision, which fails if the builds of torch and torchvision do not match."""
    try:
        torch, vision = importlib.import_module("torch"), importlib.import_module("torchvision")
        vision.ops.nms(torch.zeros(1, 4), torch.zeros(1), 0.5)
    except Exception as error:  # a broken build may raise any error: OSError of a library, RuntimeError of an operator
        yield problem("torch", f"torch and torchvision do not match ({error}): install both from one index.")
    else:
        yield ok("torch", f"{torch.__version__} with torchvision {version('torchvision')}")


def engines() -> Iterator[Finding]:
    """Check that the programs `dvc` and `snakemake` are on PATH."""
    for name in ("dvc", "snakemake"):
        program, have = shutil.which(name), installed(name)
        if program is None:
            yield problem(name, f"the program is not on PATH (package: {have or 'missing'}): {_SET_UP}.")
        elif Path(program).parent.resolve() != Path(sys.executable).parent.resolve():
            yield note(name, f"{program} is not from this environment ({sys.executable}): {_SET_UP}.")
        else:
            yield ok(name, f"{have}, {program}")
