"""Changes 30 places of the code, one at a time, and runs the tests that execute the changed line: they must fail.

`PYTHONPATH=src:tests python -m mutation`, or `make mutants`. Exit status 1 where more than four mutants survive. The
working tree stays as it is: each mutant is a copy of it in a temporary folder.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path

from mutation.equivalent import EQUIVALENT
from mutation.operators import Mutant, mutants

ROOT = Path(__file__).parents[2]
SOURCES = {
    "training": ("src/darkroom/training/**/*.py", "src/darkroom/stages/train_*.py"),
    "staleness": ("src/darkroom/dag/**/*.py",),
    "scoring": ("src/darkroom/metrics/**/*.py", "src/darkroom/stages/scor*.py"),
    "data": ("src/darkroom/data/**/*.py",),
}
TESTS = ["training", "data", "metrics", "stages", "dag", "models/generators", "tools/score"]


def options() -> argparse.Namespace:
    """Return what the command line asks for."""
    parser = argparse.ArgumentParser(prog="mutation", description=__doc__)
    parser.add_argument("--rooms", nargs="+", choices=SOURCES, default=list(SOURCES), help="where to change code")
    parser.add_argument("--draws", type=int, default=30, help="mutants")
    parser.add_argument("--caught", type=int, default=26, help="how many of them the tests must catch")
    parser.add_argument("--seed", type=int, default=0, help="of the draw")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="runs of tests at a time")
    parser.add_argument("--tests", nargs="+", default=[f"tests/{name}" for name in TESTS])
    parser.add_argument("--list", action="store_true", help="print what would be changed, and run nothing")
    return parser.parse_args()


def draw(rooms: list[str], count: int, seed: int) -> list[Mutant]:
    """Return mutants, drawn from the rooms in turn. Equivalent ones are replaced by the next."""
    drawn = []
    for room in rooms:
        paths = sorted({path for pattern in SOURCES[room] for path in ROOT.glob(pattern)})
        found = [mutant for path in paths for mutant in mutants(ROOT, path) if reason_of(mutant) is None]
        drawn.append(sorted(found, key=lambda mutant: mutant.order(seed))[:count])
    return list(chain.from_iterable(zip(*drawn, strict=True)))[:count]


def reason_of(mutant: Mutant) -> str | None:
    """Return why a mutant computes the same, or nothing."""
    return EQUIVALENT.get((mutant.path, mutant.change))


def copy_tree(folder: Path) -> None:
    """Copy what git tracks or would add, into a repository, since tests copy from there what git would add."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\0")[:-1]
    for name in names:
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    subprocess.run(["git", "init", "--quiet"], cwd=folder, check=True)


def pytest_in(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run pytest in a copy of the tree. A test that takes five minutes fails."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder / "src"), str(folder / "tests")])}
    temporary = folder.with_suffix(".pytest")
    command = [sys.executable, "-m", "pytest", "-q", "-m", "not slow", "-p", "no:cacheprovider", "--timeout=300"]
    command += [f"--basetemp={temporary}", *arguments]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    shutil.rmtree(temporary, ignore_errors=True)
    return done


def probed(text: str, statements: dict[int, Path]) -> str:
    """Return the text of a file that, before some statements, leaves the name of the test file that runs them.

    Args:
        text: of the file.
        statements: by the number of their first line, the folder in which an empty file of that name is left.
    """
    lines = text.splitlines(keepends=True)
    test = '__import__("os").environ.get("PYTEST_CURRENT_TEST", "").partition("::")[0].replace("/", "|")'
    for line, hits in statements.items():
        indent = lines[line - 1][: -len(lines[line - 1].lstrip())]
        lines[line - 1] = f'{indent}__import__("pathlib").Path({str(hits)!r}, {test}).touch()\n{lines[line - 1]}'
    return "".join(lines)


def executing(folder: Path, drawn: list[Mutant], tests: list[str], jobs: int) -> dict[Mutant, list[str]]:
    """Return the test files that execute the statement of each mutant, in this or another process.

    Test files that fail without a change, because of the probes or by themselves, are left out and printed.
    """
    copy_tree(folder)
    hits: dict[str, dict[int, Path]] = {mutant.path: {} for mutant in drawn}
    for number, mutant in enumerate(drawn):
        hits[mutant.path].setdefault(mutant.statement, folder.with_name(f"hits-{number}")).mkdir(exist_ok=True)
    for path, statements in hits.items():
        (folder / path).write_text(probed((folder / path).read_text(), statements))
    done = pytest_in(folder, f"--numprocesses={jobs}", "--dist=loadfile", *tests)
    failed = {name.partition("::")[0] for name in failures(done)}
    if done.returncode:
        print(f"left out, since they fail without a change: {sorted(failed) or done.stdout + done.stderr}")
    left = {mutant: hits[mutant.path][mutant.statement].iterdir() for mutant in drawn}
    return {mutant: sorted({path.name.replace("|", "/") for path in paths} - failed) for mutant, paths in left.items()}


def failures(done: subprocess.CompletedProcess[str]) -> list[str]:
    """Return the tests that failed, from the summary of pytest."""
    return [line.split()[1] for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]


def catch(folder: Path, mutant: Mutant, tests: list[str]) -> str | None:
    """Return the test that a mutant fails, or nothing where it survives. What takes long comes last."""
    if not tests:
        return None
    copy_tree(folder)
    changed = folder / mutant.path
    changed.write_text(mutant.apply(changed.read_text()))
    order = sorted(tests, key=lambda test: (changed.stem not in test, test.startswith("tests/dag/test"), test))
    done = pytest_in(folder, "-x", *order)
    shutil.rmtree(folder)
    return next(iter(failures(done)), f"exit status {done.returncode}") if done.returncode not in (0, 4, 5) else None


def main() -> int:
    """Draw, run, print a line a mutant, and return the exit status."""
    asked = options()
    drawn = draw(asked.rooms, asked.draws, asked.seed)
    if asked.list:
        for mutant in drawn:
            print(f"{mutant.path}:{mutant.line}  {mutant.change}")
        return 0
    with tempfile.TemporaryDirectory(prefix="mutation-") as temporary, ThreadPoolExecutor(asked.jobs) as pool:
        whole = Path(temporary).resolve() / "whole"
        tests = executing(whole, drawn, asked.tests, asked.jobs)
        folders = (whole.parent / str(number) for number in range(len(drawn)))
        ways = pool.map(catch, folders, drawn, (tests[mutant] for mutant in drawn))
        caught = 0
        for mutant, way in zip(drawn, ways, strict=True):
            caught += way is not None
            fate = f"caught by {way}" if way else f"SURVIVED {len(tests[mutant])} test files that execute it"
            print(f"{mutant.path}:{mutant.line}  {mutant.change}\n    {fate}", flush=True)
    print(f"{caught} of {len(drawn)} are caught; {asked.caught} must be.")
    return caught < asked.caught


if __name__ == "__main__":
    sys.exit(main())
