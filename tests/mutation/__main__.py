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
from json import dumps
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


def pytest_in(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run pytest in a copy of the tree. A test that takes five minutes fails."""
    environment["PYTHONPATH"] = os.pathsep.join([str(folder / "src"), str(folder / "tests")])
    temporary = folder.with_suffix(".pytest")
    command = [sys.executable, "-m", "pytest", "-q", "-m", "not slow", "-p", "no:cacheprovider", "--timeout=300"]
    command += [f"--basetemp={temporary}", *arguments]
    done = subprocess.run(command, cwd=folder, env=os.environ | environment, capture_output=True, text=True)
    shutil.rmtree(temporary, ignore_errors=True)
    return done


def executing(folder: Path, drawn: list[Mutant], tests: list[str]) -> dict[Mutant, list[str]]:
    """Return the test files that execute the statement of each mutant."""
    lines: dict[str, list[int]] = {}
    for mutant in drawn:
        lines.setdefault(str(folder / mutant.path), []).append(mutant.statement)
    places, hits = folder.with_suffix(".lines"), folder.with_suffix(".hits")
    places.write_text(dumps(lines))
    hits.touch()
    environment = {"MUTATION_LINES": str(places), "MUTATION_HITS": str(hits)}
    done = pytest_in(folder, "-p", "mutation.executed", *tests, **environment)
    if done.returncode:
        sys.exit(f"{done.stdout}{done.stderr}\nThe tests fail without any change, so they tell nothing of one.")
    found = {tuple(line.split("\t")) for line in hits.read_text().splitlines()}
    return {
        mutant: sorted(
            str(Path(test).relative_to(folder))
            for test, place in found
            if place == f"{folder / mutant.path}:{mutant.statement}"
        )
        for mutant in drawn
    }


def catch(folder: Path, mutant: Mutant, tests: list[str]) -> str | None:
    """Return the test that a mutant fails, or nothing where it survives. Tests named as its module come first."""
    if not tests:
        return None
    copy_tree(folder)
    changed = folder / mutant.path
    changed.write_text(mutant.apply(changed.read_text()))
    done = pytest_in(folder, "-x", *sorted(tests, key=lambda test: (changed.stem not in test, test)))
    shutil.rmtree(folder)
    failed = [line.split()[1] for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return (failed or [f"exit status {done.returncode}"])[0] if done.returncode else None


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
        copy_tree(whole)
        tests = executing(whole, drawn, asked.tests)
        folders = (whole.parent / str(number) for number in range(len(drawn)))
        ways = pool.map(catch, folders, drawn, (tests[mutant] for mutant in drawn))
        caught = 0
        for mutant, way in zip(drawn, ways, strict=True):
            caught += way is not None
            fate = f"caught by {way}" if way else f"SURVIVED {len(tests[mutant])} test files"
            print(f"{mutant.path}:{mutant.line}  {mutant.change}\n    {fate}", flush=True)
    print(f"{caught} of {len(drawn)} are caught; {asked.caught} must be.")
    return caught < asked.caught


if __name__ == "__main__":
    sys.exit(main())
