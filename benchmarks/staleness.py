"""How many stages the last commits made stale: by the fingerprint of then, and by that of this checkout.

For each commit that touched src, the fingerprints of its tree and of its parent's are compared, and the stages whose
code differs are counted; those below them, which run again if a result changes, are not.
Run it in a clone with its history: `.venv/bin/python benchmarks/staleness.py`. Prints a Markdown table.
"""

import argparse
import json
import os
import runpy
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping
from copy import copy
from io import BytesIO
from pathlib import Path
from typing import Any

from darkroom.dag.fingerprint import following, modules
from darkroom.dag.fingerprint import stages as code

ROOT = Path(__file__).resolve().parents[1]
KINDS = {"train_tokenizer": {"kind": "kl"}, "train_generator": {"kind": "dit"}}
Codes = dict[str, str]  # for each stage, what stands for its fingerprint
WAYS = ("of then", "of now")
_MODULES: dict[tuple[str, str], modules.Module] = {}
# Runs with the package of a tree on Python's path, which alone knows its fingerprint.
OF_THEN = """
import inspect, json, sys
from pathlib import Path
from darkroom.dag.fingerprint import stages as code
from darkroom.dag.stages import STAGES
folder, names = Path(sys.argv[1]), [name for name in STAGES if name != "code"]
sources = code.Sources(folder)
takes_sources = "sources" in inspect.signature(code.fingerprints).parameters
found = code.fingerprints(names, json.loads(sys.argv[2]), sources if takes_sources else folder)
start = getattr(code, "entry_points", None) or code.roots
files = {name: sorted({name, *(table.name for _, table in sources.closure(start(name)).tables)}) for name in names}
print(json.dumps({name: json.dumps([found.get(file) for file in files[name]], sort_keys=True) for name in names}))
"""


def git(*arguments: str) -> bytes:
    """Return what git prints."""
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True).stdout


def of_tree(tree: str, folder: Path, then: bool) -> tuple[dict[str, Codes], list[str]]:
    """Return the codes of the stages of a tree of src by each way, and its trainings."""
    target = folder / tree
    with tarfile.open(fileobj=BytesIO(git("archive", tree))) as archive:
        archive.extractall(target, filter="data")
    stages = runpy.run_path(str(target / "darkroom/dag/stages.py"))["STAGES"]
    codes = {"of then": _of_then(target) if then else {}, "of now": _of_now(target, stages)}
    return codes, [name for name, stage in stages.items() if stage.trains]


def _of_then(folder: Path) -> Codes:
    done = subprocess.run(
        [sys.executable, "-B", "-c", OF_THEN, str(folder), json.dumps(KINDS)],
        env=os.environ | {"PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        sys.exit(done.stderr)
    found: Codes = json.loads(done.stdout)
    return found


def _of_now(folder: Path, stages: Mapping[str, Any]) -> Codes:
    code.STAGES = stages  # type: ignore[assignment]  # those of the tree
    names = [name for name in stages if name != "code"]
    sources = code.Sources(folder)
    found = code.fingerprints(names, KINDS, sources)
    codes = {}
    for name in names:
        files = sorted({name, *(table.name for _, table in sources.closure(code.roots(name)).tables)})
        codes[name] = json.dumps([found.get(file) for file in files], sort_keys=True)
    return codes


def _read_once(name: str, path: Path) -> modules.Module:
    """Read a module, once for all trees that have the same."""
    key = name, path.read_text()
    if key not in _MODULES:
        _MODULES[key] = modules.Module(name, path)
    module = copy(_MODULES[key])
    module.path = path
    return module


def differing(old: Mapping[str, str], new: Mapping[str, str]) -> set[str]:
    """Return the stages of both trees whose code differs."""
    return {name for name in old.keys() & new.keys() if old[name] != new[name]}


def main() -> None:
    """Compare each commit with its parent, and print what became stale."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("revision", nargs="?", default="9a625f7", help="the last commit; %(default)s")
    parser.add_argument("--commits", type=int, default=45, help="commits that touched src; %(default)s")
    parser.add_argument("--now", action="store_true", help="leave out the fingerprint of then")
    options = parser.parse_args()
    ways = WAYS[options.now :]
    following.Module = _read_once  # type: ignore[assignment,misc]
    log = git("log", f"-{options.commits}", "--no-merges", "--format=%h %p %s", options.revision, "--", "src").decode()
    seen: dict[str, tuple[dict[str, Codes], list[str]]] = {}
    sums = dict.fromkeys(ways, (0, 0))
    print(f"| commit | {' | | '.join(ways)} | |\n|---|{'---|---|' * len(ways)}")
    with tempfile.TemporaryDirectory() as name:
        for line in reversed(log.splitlines()):
            commit, parent, subject = line.split(" ", 2)
            trees = [git("rev-parse", f"{each}:src").decode().strip() for each in (parent, commit)]
            for tree in trees:
                if tree not in seen:
                    seen[tree] = of_tree(tree, Path(name), "of then" in ways)
            (old, _), (new, trainings) = (seen[tree] for tree in trees)
            cells = []
            for way in ways:
                stale = differing(old[way], new[way])
                cells += [len(stale), len(stale & set(trainings))]
                sums[way] = (sums[way][0] + cells[-2], sums[way][1] + cells[-1])
            print(f"| {commit} {subject[:60]} | {' | '.join(map(str, cells))} |", flush=True)
    print(f"| **sum: stages, trainings** | {' | '.join(str(each) for way in ways for each in sums[way])} |")


if __name__ == "__main__":
    main()
