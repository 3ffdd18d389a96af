"""The graph of the stages of dvc.yaml: an edge from each producer of a path to its consumers."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from darkroom.dag.fingerprint.stages import STAGE as CODE
from darkroom.dag.stages import singular
from darkroom.errors import DarkroomError
from darkroom.params.section import PARAMS
from darkroom.params.stage import DVC, OUTPUTS, items, paths, related, scope, spread_over, stage_entry


@dataclass(frozen=True)
class Graph:
    """Stages and the edges between them, without edges that a longer path implies.

    stages: descriptions by name, in the order of dvc.yaml.
    spread: stages that run once for each entry of a key of params.yaml, with the singular of that key: `part`.
    edges: pairs (producer, consumer), in the order of the stages.
    """

    stages: dict[str, str]
    spread: dict[str, str]
    edges: tuple[tuple[str, str], ...]


def consumers(params: Mapping[str, Any], dvc: Mapping[str, Any]) -> dict[str, set[str]]:
    """Return for each stage of dvc.yaml except `code` the stages that read its outputs.

    Args:
        params: the content of params.yaml, whose keys the paths in dvc.yaml refer to.
        dvc: the content of dvc.yaml.
    """
    reads: dict[str, list[str]] = {}
    writes: dict[str, list[str]] = {}
    for name in dvc.get("stages", {}):
        if name == CODE:  # before every stage
            continue
        entry, reads[name], writes[name] = stage_entry(dvc, name), [], []
        for item in items(params, dvc, name):  # one box for all runs of a stage, with the edges of each run
            names = scope(params, dvc, name, item)
            reads[name] += paths(entry, ["deps"], names)
            writes[name] += paths(entry, OUTPUTS, names)
    return {
        maker: {
            reader
            for reader, needed in reads.items()
            if reader != maker and any(related(one, other) for one in made for other in needed)
        }
        for maker, made in writes.items()
    }


def below(after: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """Return for each stage all stages that depend on it, directly or not.

    Raises:
        DarkroomError: the stages form a circle; the message names it.
    """
    found: dict[str, set[str]] = {}

    def visit(stage: str, path: tuple[str, ...]) -> set[str]:
        if stage in path:
            raise DarkroomError(f"{DVC}: {stage} depends on what is made from it: {' → '.join((*path, stage))}.")
        if stage not in found:
            found[stage] = after[stage].union(*(visit(reader, (*path, stage)) for reader in sorted(after[stage])))
        return found[stage]

    for stage in after:
        visit(stage, ())
    return found


def read_graph(params: Mapping[str, Any], dvc: Mapping[str, Any]) -> Graph:
    """Return the graph of the stages of dvc.yaml, without edges that a longer path implies.

    Raises:
        DarkroomError: a path refers to a missing key of params.yaml, there is no stage, or the stages form a circle.
    """
    after = consumers(params, dvc)
    if not after:
        raise DarkroomError(f"{DVC} holds no stages; {PARAMS} alone draws nothing.")
    later = below(after)
    # Transitive reduction: a → c is removed where some a → b leads on to c.
    edges = tuple(
        (maker, reader)
        for maker, readers in after.items()
        for reader in after
        if reader in readers and not any(reader in later[between] for between in readers)
    )
    stages = {name: stage for name, stage in dvc["stages"].items() if name != CODE}
    over = {name: spread_over(dvc, name) for name in stages}
    return Graph(
        stages={name: stage.get("do", stage).get("desc", "") for name, stage in stages.items()},
        spread={name: singular(key) for name, key in over.items() if key is not None},
        edges=edges,
    )
