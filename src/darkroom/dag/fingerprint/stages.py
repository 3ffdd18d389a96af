"""Compute the code of each stage: the output of the stage `code`, and the input of `darkroom why`.

`build/code/STAGE.json` holds, for each module, the hash of each definition that the stage reaches. Where parameters
choose among kinds (`darkroom.kinds`), the code of the chosen kind is in the file that its table names: that of the
stage, or of the artifact that the code opens, `build/code/models/tokenizer.json`. So an edit of a kind makes only
the stages stale that run it. `build/code/data/none.json` is empty: the code of an artifact that is not used.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from darkroom.dag.fingerprint.following import PACKAGE, WHOLE, Place, Sources
from darkroom.dag.fingerprint.modules import Table
from darkroom.dag.fingerprint.trees import Definitions, digest
from darkroom.dag.stages import STAGES
from darkroom.errors import DarkroomError
from darkroom.params.stage import DVC, lookup

STAGE = "code"
OUT = Path("build/code")
SOURCE = Path(__file__).resolve().parents[3]  # the folder of the running code: `src` of this checkout
UNUSED = "data/none"  # the value of a path in params.yaml for no artifact

Fingerprint = dict[str, Definitions]  # by module, or by the path of a data file

# What the runner does that decides a result: the parameters that a stage is given, its threads and its devices.
_RUNNER: tuple[Place, ...] = (
    (f"{PACKAGE}.environment", WHOLE),
    (f"{PACKAGE}.params.section", "validate"),
    *((f"{PACKAGE}.params.stage", name) for name in ("stage_params", "threads", "processes")),
)
# What a training continues from is written by a module without effect, which decides when.
_TRAINING: tuple[Place, ...] = tuple((f"{PACKAGE}.training.checkpoint", name) for name in ("save", "copied"))


def roots(stage: str) -> list[Place]:
    """Return the root definitions of a stage: its body, its settings, and its runner."""
    settings, _, name = STAGES[stage].settings.partition(":")
    own = [(f"{PACKAGE}.stages.{stage}", "run"), (settings, name)]
    return [*own, *_RUNNER, *(_TRAINING if STAGES[stage].trains else ())]


def undeclared(stages: Iterable[str], dvc: Mapping[str, Any], sources: Sources) -> list[str]:
    """Return messages about missing dependencies in dvc.yaml of stages that choose among kinds."""
    entries, missing = dvc["stages"], []
    for stage in stages:
        deps = entries[stage].get("do", entries[stage]).get("deps", [])
        for _, table in sources.closure(roots(stage)).tables:
            files = (f"{OUT}/{table.name}.json", f"{OUT}/${{")  # or a template, which may be data/none
            if table.name != stage and not any(dep == files[0] or dep.startswith(files[1]) for dep in deps):
                missing.append(f"{DVC}: {stage} does not list {files[0]} under `deps`.")
            if table.chosen_by not in entries[STAGE].get("params", []):
                missing.append(f"{DVC}: {STAGE} does not list {table.chosen_by} under `params`.")
    return list(dict.fromkeys(missing))


def fingerprints(stages: Iterable[str], params: Mapping[str, Any], sources: Sources) -> dict[str, Fingerprint]:
    """Return the fingerprints of stages, and of the artifacts they open, by the names of their files.

    `params` holds at least the keys that choose among kinds.

    Raises:
        DarkroomError: a stage has no module, or a module is not valid Python; the message names it.
    """
    results: dict[str, Fingerprint] = {UNUSED: {}}
    tables: dict[str, dict[str, list[Table]]] = {}  # by name, then by the module that holds them
    for stage in stages:
        closure = sources.closure(roots(stage))
        results[stage] = sources.hashes(closure.places)
        for module, table in closure.tables:
            known_tables = tables.setdefault(table.name, {}).setdefault(module, [])
            if table not in known_tables:
                known_tables.append(table)
    for name, holders in tables.items():
        results[name] = merged([results.get(name, {}), _chosen(sources, name, holders, params)])
    return results


def _chosen(
    sources: Sources, name: str, holders: Mapping[str, Iterable[Table]], params: Mapping[str, Any]
) -> Fingerprint:
    """Return the fingerprint of the chosen kind: its lines in the tables, and the closure of the modules named there.

    Raises:
        DarkroomError: a module of the kind holds a table of another name, which no stage would depend on.
    """
    lines: Fingerprint = {}
    start: set[Place] = set()
    for module, tables in holders.items():
        for table in tables:
            kind = lookup(params, table.chosen_by)
            if kind in table.places:
                lines.setdefault(module, {})[f"{kind}.{table.part}"] = digest(table.places[kind])
                start_module, _, definition = table.places[kind].partition(":")
                start.add((start_module, definition))
    closure = sources.closure(sorted(start))
    for module, table in closure.tables:
        if table.name != name:
            raise DarkroomError(f"a kind of {name} loads {module}, which chooses a kind of {table.name}.")
    return merged([lines, sources.hashes(closure.places)])


def merged(fingerprints: Iterable[Mapping[str, Definitions]]) -> Fingerprint:
    """Return the union of several fingerprints."""
    union: Fingerprint = {}
    for fingerprint in fingerprints:
        for module, names in fingerprint.items():
            union[module] = {**union.get(module, {}), **names}
    return dict(sorted(union.items()))


def changes(old: Mapping[str, Definitions], new: Mapping[str, Definitions]) -> list[str]:
    """Return the differences of two fingerprints, one line per module: `darkroom.diffusion.flow: Flow changed`."""
    lines = []
    for module in sorted(old.keys() | new.keys()):
        if module not in new:
            lines.append(f"{module}: no longer used")
        elif module not in old:
            lines.append(f"{module}: new")
        elif old[module] != new[module]:
            lines.append(f"{module}: {_differences(old[module], new[module])}")
    return lines


def _differences(old: Definitions, new: Definitions) -> str:
    """Return the definitions that differ as text; other statements are mentioned only where no definition differs."""
    lines = []
    for name in sorted(filter(None, old.keys() | new.keys())):
        if old.get(name) != new.get(name):
            lines.append(f"{name} {'no longer used' if name not in new else 'new' if name not in old else 'changed'}")
    return ", ".join(lines) or "changed outside of its functions and classes"
