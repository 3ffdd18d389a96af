#!/usr/bin/env python3
"""Draw docs/dag.svg, the stages of dvc.yaml and the edges between them, or check that it is up to date.

    PYTHONPATH=src python workflow/draw_dag.py [--write]

The drawing is committed, because the page shows it, and DVC refuses dvc.yaml as a dependency of a stage. Its colours
are readable on white and on black: GitHub shows it without the style sheet of a page. The page sets its own colours.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape, quoteattr

import networkx as nx
from sklearn.isotonic import isotonic_regression

from darkroom.artifacts.atomic import write_bytes
from darkroom.dag.stages import singular
from darkroom.errors import DarkroomError
from darkroom.params.section import PARAMS
from darkroom.params.stage import DVC, read_yaml, spread_over, stage_entry
from darkroom.tools.times import consumers

PICTURE = Path("docs/dag.svg")
Node = str | tuple[str, str, int]  # a stage, or the bend of the edge (producer, consumer) in a layer
_SWEEPS = 24
_LETTER = 8.4  # px, width of a letter of a monospaced font of 14 px
_PADDING, _BOX, _GAP, _PITCH, _MARGIN = 9.0, 40.0, 34.0, 62.0, 6.0  # px
_ARROW = 7.0  # px, length of an arrow's head
_FILL, _BORDER, _TEXT, _LINE = "#e6edf5", "#75879c", "#17222e", "#7f8c9b"
_FONT = "ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono','Liberation Mono',monospace"


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


def read_graph(params: Mapping[str, Any], dvc: Mapping[str, Any]) -> Graph:
    """Return the graph of the stages of dvc.yaml, without edges that a longer path implies.

    Raises:
        DarkroomError: a path refers to a missing key of params.yaml, there is no stage, or the stages form a cycle.
    """
    after = consumers(params, dvc)
    if not after:
        raise DarkroomError(f"{DVC} holds no stages; {PARAMS} alone draws nothing.")
    graph = nx.DiGraph(after)
    if not nx.is_directed_acyclic_graph(graph):
        circle = [maker for maker, _ in nx.find_cycle(graph)]
        raise DarkroomError(f"{DVC}: {circle[0]} depends on its own outputs: {' → '.join([*circle, circle[0]])}.")
    direct = nx.transitive_reduction(graph).edges
    over = {name: spread_over(dvc, name) for name in after}
    return Graph(
        stages={name: stage_entry(dvc, name).get("desc", "") for name in after},
        spread={name: singular(key) for name, key in over.items() if key is not None},
        edges=tuple((maker, reader) for maker in after for reader in after if (maker, reader) in direct),
    )


class Layout:
    """Boxes in layers from left to right, and long edges around them.

    After Sugiyama, Tagawa and Toda, "Methods for visual understanding of hierarchical system structures", 1981: layers
    by the longest path, a bend in every layer that an edge crosses, each node at the mean height of its neighbours.

    layers: the nodes of each layer, from top to bottom; layers from left to right.
    ways: for each edge its nodes: producer, bends, consumer.
    height: the vertical position of each node, in units of the smallest distance of two nodes of a layer, from 0.
    """

    def __init__(self, graph: Graph) -> None:
        stages, lines = nx.DiGraph(graph.edges), nx.Graph()
        stages.add_nodes_from(graph.stages)
        lines.add_nodes_from(graph.stages)
        depth = {stage: layer for layer, each in enumerate(nx.topological_generations(stages)) for stage in each}
        for stage in reversed(list(nx.topological_sort(stages))):
            if stages.out_degree(stage) > stages.in_degree(stage):  # nearer to its readers: edges get shorter
                depth[stage] = min(depth[reader] for reader in stages[stage]) - 1
        self.ways: dict[tuple[str, str], list[Node]] = {}
        for maker, reader in graph.edges:
            bends: list[Node] = [(maker, reader, layer) for layer in range(depth[maker] + 1, depth[reader])]
            self.ways[maker, reader] = [maker, *bends, reader]
            nx.add_path(lines, self.ways[maker, reader])
        self.layers: list[list[Node]] = [[] for _ in range(max(depth.values()) + 1)]
        for node in lines:
            self.layers[depth[node] if isinstance(node, str) else node[2]].append(node)
        height = {node: float(at) for layer in self.layers for at, node in enumerate(layer)}
        for _ in range(_SWEEPS):
            before = dict(height)
            for layer in (*self.layers, *reversed(self.layers)):
                wish = {n: sum(height[m] for m in lines[n] or [n]) / len(lines[n] or [n]) for n in layer}
                layer.sort(key=wish.__getitem__)
                # The nearest heights in this order and at least 1 apart: less their ranks, they never descend.
                nearest = isotonic_regression([wish[node] - at for at, node in enumerate(layer)])
                height.update(
                    {node: float(value) + at for at, (node, value) in enumerate(zip(layer, nearest, strict=True))}
                )
            if height == before:  # later sweeps change nothing either
                break
        # Halves make almost level edges level; floor(2 y + 1/2) keeps the distance of 1.
        top = min(height.values())
        self.height = {node: int(2 * round(value - top, 6) + 0.5) / 2 for node, value in height.items()}


def _px(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def draw(graph: Graph) -> str:
    """Return an SVG document with a newline at its end; equal graphs give equal texts."""
    layout = Layout(graph)
    left: dict[Node, float] = {}
    right: dict[Node, float] = {}
    x = _MARGIN
    for layer in layout.layers:
        width = max((len(node) * _LETTER + 2 * _PADDING for node in layer if isinstance(node, str)), default=0.0)
        left.update(dict.fromkeys(layer, x))
        right.update(dict.fromkeys(layer, x + width))
        x += width + _GAP
    middle = {node: _MARGIN + _BOX / 2 + _PITCH * height for node, height in layout.height.items()}
    size = f"{_px(x - _GAP + _MARGIN)} {_px(max(middle.values()) + _BOX / 2 + _MARGIN)}"
    sentences = [  # for readers who cannot see the drawing
        f"{stage} leads to {' and '.join(readers)}."
        for stage in graph.stages
        if (readers := [reader for maker, reader in graph.edges if maker == stage])
    ]
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="dag" role="img" aria-labelledby="dag-title dag-text" '
        f'width="{size.split()[0]}" height="{size.split()[1]}" viewBox="0 0 {size}">',
        '<title id="dag-title">The stages of the DAG</title>',
        f'<desc id="dag-text">{escape(" ".join(sentences))}</desc>',
        f'<g class="edges" fill="none" stroke="{_LINE}" stroke-width="1.5">',
        *(_edge(way, left, right, middle) for way in layout.ways.values()),
        "</g>",
        f'<g class="boxes" font-family={quoteattr(_FONT)} font-size="14" text-anchor="middle">',
        *(_box(graph, stage, left[stage], right[stage], middle[stage]) for stage in graph.stages),
        "</g>",
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _edge(way: list[Node], left: dict[Node, float], right: dict[Node, float], middle: dict[Node, float]) -> str:
    """Draw one edge: curves between layers, horizontal lines through the layers that it crosses."""
    steps = [f"M{_px(right[way[0]])} {_px(middle[way[0]])}"]
    for one, other in pairwise(way):
        end = left[other] - (_ARROW if other is way[-1] else 0)
        turn = _px((right[one] + end) / 2)
        y = _px(middle[other])
        steps.append(f"C{turn} {_px(middle[one])} {turn} {y} {_px(end)} {y}")
        if other is not way[-1]:
            steps.append(f"H{_px(right[other])}")
    head = f"M{_px(left[way[-1]])} {_px(middle[way[-1]])}l{_px(-_ARROW)} -4v8z"
    return (
        f'<g data-edge={quoteattr(f"{way[0]} {way[-1]}")}><path d="{"".join(steps)}"/>'
        f'<path class="head" d="{head}" fill="{_LINE}" stroke="none"/></g>'
    )


def _box(graph: Graph, stage: str, left: float, right: float, middle: float) -> str:
    """Draw one stage: its box, its name, and `@part` or similar if it runs once for each entry of a key."""
    centre = _px((left + right) / 2)
    each = graph.spread.get(stage)
    boxes = [
        f'<rect x="{_px(left + by)}" y="{_px(middle - _BOX / 2 + by)}" width="{_px(right - left)}" '
        f'height="{_px(_BOX)}" rx="5" fill="{_FILL}" stroke="{_BORDER}"/>'
        for by in ([3.0, 0.0] if each else [0.0])  # a second box behind the first, for a stage of several runs
    ]
    name = f'<text x="{centre}" y="{_px(middle + (-1 if each else 5))}" fill="{_TEXT}">{escape(stage)}</text>'
    one = f'<text x="{centre}" y="{_px(middle + 14)}" font-size="12" fill="{_TEXT}">@{each}</text>' if each else ""
    title = f"<title>{escape(graph.stages[stage])}</title>" if graph.stages[stage] else ""
    return f"<g data-stage={quoteattr(stage)}>{title}{''.join(boxes)}{name}{one}</g>"


def main() -> str | None:
    """Check the drawing, or write it with --write; return what is wrong."""
    picture = draw(read_graph(read_yaml(PARAMS), read_yaml(DVC))).encode()
    if "--write" in sys.argv[1:]:
        write_bytes(PICTURE, picture)
    elif not PICTURE.is_file() or PICTURE.read_bytes() != picture:
        return f"{PICTURE} does not match {DVC}: run `make format` and commit it."
    return None


if __name__ == "__main__":
    sys.exit(main())
