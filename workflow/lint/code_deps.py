"""Compares the code that each stage lists under `deps` in dvc.yaml with the code that it imports.

DVC reruns a stage when a file under its `deps` changes, and knows nothing of imports. What a stage imports, directly or
not and also inside functions, is read by grimp from the source. So a change in the DiT retrains no tokenizer, and no
change goes unseen. `--write` brings dvc.yaml into line, so nobody keeps the lists by hand.
"""

import argparse
import ast
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import grimp
from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq

PACKAGE = "darkroom"
SOURCE = Path("src")
DVC = Path("dvc.yaml")

_FETCHED = "fetches and keeps shards that lie elsewhere; what comes is checked by its hash"
_ELSEWHERE = "copies checkpoints elsewhere and back; what comes back is checked by its hashes"

# Modules that no stage depends on, because no line in them can change a byte of an output.
HARMLESS = {
    "darkroom.__main__": "starts the command line",
    "darkroom.cli": "reads the command line",
    "darkroom.check": "validates, and changes nothing",
    "darkroom.data.cache": _FETCHED,
    "darkroom.data.remote": _FETCHED,
    "darkroom.dry_run": "prints what a training would do, and does nothing",
    "darkroom.family": "starts and ends the processes of a training",
    "darkroom.launch": "says which processes share a training, and which one this is",
    "darkroom.preset": "writes params.yaml, which the stages depend on key by key",
    "darkroom.progress": "prints how far a stage is",
    "darkroom.recipes.evaluation": "scores the averages of train_dit while it trains, where asked; no weight follows",
    "darkroom.recipes.own_images": "draws images for the grids of a training; no weight follows",
    "darkroom.runner": "sets up log, signals and the threads that params.yaml names, around the body",
    "darkroom.schemas.run": "the section `run`, a dependency of no stage",
    "darkroom.stages": "the names of the stages, for the command line",
    "darkroom.terminal": "writes lines and bars to the terminal and the log",
    "darkroom.training.guards": "stops a training with a sentence",
    "darkroom.training.interrupt": "remembers a signal",
    "darkroom.training.journal": "tells how far a training is",
    "darkroom.training.remote.open": _ELSEWHERE,
    "darkroom.training.remote.place": _ELSEWHERE,
    "darkroom.training.remote.files": _ELSEWHERE,
    "darkroom.training.remote.hub": _ELSEWHERE,
    "darkroom.training.remote.wandb_artifacts": _ELSEWHERE,
    "darkroom.network": "says what a network's error means",
    "darkroom.training.saver": "says when a checkpoint is written, and not what",
    "darkroom.training.state": "finds the folder of a training's state",
    "darkroom.training.trackers": "copies records to TensorBoard and Weights & Biases",
    "darkroom.watch": "says when a stage must stop, and stops it",
}


def path_of(module: str) -> Path:
    """Return the file of a module, relative to the root of the clone."""
    path = SOURCE.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def only_docstring(path: Path) -> bool:
    """Return whether a file holds no code: a docstring, or nothing."""
    body = ast.parse(path.read_text()).body
    return all(isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) for node in body)


def ignored(path: Path) -> bool:
    """Return whether a change of this file cannot change an output: an empty `__init__.py`, or a harmless module."""
    if path.suffix != ".py":
        return False
    parts = path.relative_to(SOURCE).with_suffix("").parts
    module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
    return module in HARMLESS or (path.name == "__init__.py" and only_docstring(path))


def files_in(folder: Path) -> set[Path]:
    """Return the files below a folder that can change an output."""
    return {p for p in folder.rglob("*") if p.is_file() and "__pycache__" not in p.parts and not ignored(p)}


def imports(graph: grimp.ImportGraph, start: Iterable[str]) -> set[str]:
    """Return every module that the given ones load: what they import, and the packages that these lie in."""
    found: set[str] = set()
    waiting = list(start)
    while waiting:
        module = waiting.pop()
        if module in found or module in HARMLESS:
            continue
        found.add(module)
        waiting += graph.find_modules_directly_imported_by(module)
        if "." in module:
            waiting.append(module.rpartition(".")[0])
    return found


def entrances(stage: str) -> set[str]:
    """Return the modules that a stage starts from: its body and its schema."""
    return {f"{PACKAGE}.stages.{stage}", f"{PACKAGE}.schemas.{stage}"}


def needed(graph: grimp.ImportGraph, stage: str) -> set[Path]:
    """Return the files that a stage runs: its module, its schema, what they load, and data files beside a module."""
    files: set[Path] = set()
    for module in imports(graph, entrances(stage)):
        path = path_of(module)
        files.add(path)
        if path.parent != SOURCE / PACKAGE:
            files |= {beside for beside in path.parent.iterdir() if beside.is_file() and beside.suffix != ".py"}
    return {path for path in files if not ignored(path)}


def shortened(files: set[Path]) -> Iterator[str]:
    """Yield the entries for `deps`: a whole room where the stage needs all of it, else files."""
    rest = set(files)
    rooms = {room for path in files for room in path.parents if SOURCE / PACKAGE in room.parents}
    for room in sorted(rooms, key=lambda path: len(path.parts)):
        inside = files_in(room)
        # DVC would hash what is ignored, too: a room that holds such a file is listed file by file.
        hashed = {path for path in room.rglob("*") if path.is_file() and "__pycache__" not in path.parts}
        spare = {path for path in hashed - inside if path.name != "__init__.py"}
        if len(inside) > 1 and inside <= rest and not spare:
            rest -= inside
            yield str(room)
    yield from map(str, rest)


def expanded(entries: Iterable[str]) -> set[Path]:
    """Return the files that entries of `deps` stand for, without those that cannot change an output."""
    return {
        file
        for path in map(Path, entries)
        for file in (files_in(path) if path.is_dir() else {path})
        if not (file.is_file() and ignored(file))
    }


def is_code(entry: str) -> bool:
    """Return whether an entry of `deps` is code of the package."""
    return SOURCE / PACKAGE in Path(entry).parents


def replace(entry: CommentedMap, code: list[str]) -> None:
    """Put `code` after the other `deps` of a stage, in place of the code that is listed."""
    if "deps" not in entry:
        place = list(entry).index("params") + 1 if "params" in entry else len(entry)
        entry.insert(place, "deps", CommentedSeq())
    deps = entry["deps"]
    for index in reversed([i for i, item in enumerate(deps) if is_code(item)]):
        del deps[index]
    deps.extend(code)


def main() -> int:
    """Compare or, with `--write`, mend; return 1 where dvc.yaml differs from the imports."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--write", action="store_true", help="rewrite the code under `deps` in dvc.yaml")
    write = parser.parse_args().write
    yaml = YAML()
    yaml.indent(mapping=2, sequence=4, offset=2)
    yaml.width = 1000
    document: Any = yaml.load(DVC.read_text())
    graph = grimp.build_graph(PACKAGE, cache_dir=None)
    for module, reason in HARMLESS.items():
        print(f"no dependency of any stage: {module} ({reason})")
    faults = [f"{module} does not exist: take it out of HARMLESS" for module in set(HARMLESS) - graph.modules]
    for stage, entry in document["stages"].items():
        if missing := entrances(stage) - graph.modules:
            faults.append(f"{DVC}: stages.{stage} has no module {' or '.join(sorted(missing))}")
            continue
        entry = entry.get("do", entry)
        listed = [item for item in entry.get("deps", []) if is_code(item)]
        code = sorted(shortened(needed(graph, stage)))
        if expanded(listed) == expanded(code) and not write:
            continue
        replace(entry, code)
        changes = [f"+ {item}" for item in sorted(set(code) - set(listed))]
        changes += [f"- {item}" for item in sorted(set(listed) - set(code))]
        faults += [f"{DVC}: stages.{stage}.deps: {change}" for change in changes]
    print("\n".join(faults) or f"{DVC}: the code under deps is what the stages import.")
    if write:
        with DVC.open("w") as file:
            yaml.dump(document, file)
        return 0
    if faults:
        print("`make format` mends the lists.")
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())
