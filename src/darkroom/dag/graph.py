"""The graph of the stages of dvc.yaml: an edge from each producer of a path to its consumers."""

from collections.abc import Mapping
from typing import Any

import networkx as nx

from darkroom.dag.fingerprint.stages import STAGE as CODE
from darkroom.params.stage import OUTPUTS, items, paths, related, scope, stage_entry


def consumers(params: Mapping[str, Any], dvc: Mapping[str, Any]) -> dict[str, set[str]]:
    """Return for each stage of dvc.yaml except `code` the stages that read its outputs."""
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
    """Return for each stage all stages that depend on it, directly or not."""
    graph = nx.DiGraph(after)
    return {stage: nx.descendants(graph, stage) for stage in after}
