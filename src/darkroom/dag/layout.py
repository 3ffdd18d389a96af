"""The layout of a graph: boxes in layers from left to right, few crossings, long edges around boxes.

Sugiyama, Tagawa and Toda, "Methods for visual understanding of hierarchical system structures", 1981: layers by the
longest path, a bend in every layer that an edge crosses, orders by the mean position of neighbours, then heights.
"""

from collections.abc import Mapping, Sequence
from itertools import combinations, pairwise
from math import floor

from darkroom.dag.graph import Graph

Node = str | tuple[str, str, int]  # a stage, or the bend of the edge (producer, consumer) in a layer
_SWEEPS = 24


class Layout:
    """Positions of the nodes, and routes of the edges.

    layers: the nodes of each layer, from top to bottom; layers from left to right.
    ways: for each edge its nodes: producer, bends, consumer.
    height: the vertical position of each node, in units of the smallest distance of two nodes of a layer, from 0.
    """

    def __init__(self, graph: Graph) -> None:
        depth = _depths(graph)
        self.ways: dict[tuple[str, str], list[Node]] = {}
        self.layers: list[list[Node]] = [[] for _ in range(max(depth.values()) + 1)]
        for stage in graph.stages:
            self.layers[depth[stage]].append(stage)
        for maker, reader in graph.edges:
            bends: list[Node] = [(maker, reader, layer) for layer in range(depth[maker] + 1, depth[reader])]
            for bend, layer in zip(bends, self.layers[depth[maker] + 1 :], strict=False):
                layer.append(bend)
            self.ways[maker, reader] = [maker, *bends, reader]
        self._left: dict[Node, list[Node]] = {node: [] for layer in self.layers for node in layer}
        self._right: dict[Node, list[Node]] = {node: [] for layer in self.layers for node in layer}
        for way in self.ways.values():
            for one, other in pairwise(way):
                self._right[one].append(other)
                self._left[other].append(one)
        self._order()
        self.height = self._heights()

    def _order(self) -> None:
        """Order each layer by the mean position of its neighbours, to and fro; keep the order with fewest crossings."""
        best, fewest = [list(layer) for layer in self.layers], self.crossings()
        for sweep in range(_SWEEPS):
            near = self._right if sweep % 2 else self._left
            for layer in reversed(self.layers) if sweep % 2 else self.layers:
                place = {node: at for other in self.layers for at, node in enumerate(other)}
                mean = {n: sum(place[m] for m in near[n]) / len(near[n]) if near[n] else place[n] for n in layer}
                layer.sort(key=mean.__getitem__)
            if (found := self.crossings()) < fewest:
                best, fewest = [list(layer) for layer in self.layers], found
        self.layers = best

    def crossings(self) -> int:
        """Return the number of crossings of two edges."""
        place = {node: at for layer in self.layers for at, node in enumerate(layer)}
        count = 0
        for layer in self.layers:
            pieces = [(place[one], place[other]) for one in layer for other in self._right[one]]
            count += sum((a - c) * (b - d) < 0 for (a, b), (c, d) in combinations(pieces, 2))
        return count

    def _heights(self) -> dict[Node, float]:
        height: dict[Node, float] = {node: float(at) for layer in self.layers for at, node in enumerate(layer)}
        for _ in range(10 * _SWEEPS):
            for layer in (*self.layers, *reversed(self.layers)):
                height.update(zip(layer, spaced_apart([self._wish(node, height) for node in layer]), strict=True))
        # Halves make almost level edges level; floor(2 y + 1/2) keeps the distance of 1.
        top = min(height.values())
        return {node: floor(2 * round(value - top, 6) + 0.5) / 2 for node, value in height.items()}

    def _wish(self, node: Node, height: Mapping[Node, float]) -> float:
        """Return the best height of a node: the mean of its neighbours, with more weight on bends, for level edges."""
        near = [*self._left[node], *self._right[node]]
        weight = [1 if isinstance(other, str) else 8 for other in near]
        weighted = sum(w * height[other] for w, other in zip(weight, near, strict=True))
        return weighted / sum(weight) if near else height[node]


def _depths(graph: Graph) -> dict[str, int]:
    """Return the layer of each stage: the length of the longest path to it, or further right if that shortens edges."""
    makers: Mapping[str, list[str]] = {
        stage: [maker for maker, reader in graph.edges if reader == stage] for stage in graph.stages
    }
    readers: Mapping[str, list[str]] = {
        stage: [reader for maker, reader in graph.edges if maker == stage] for stage in graph.stages
    }
    depth: dict[str, int] = {}

    def visit(stage: str) -> int:
        if stage not in depth:
            depth[stage] = max((visit(maker) + 1 for maker in makers[stage]), default=0)
        return depth[stage]

    for stage in graph.stages:
        visit(stage)
    # A stage with more consumers than producers is moved next to its first consumer: each layer nearer shortens more
    # edges than it lengthens. From the right, so that the consumers are in their final layers.
    for stage in sorted(depth, key=depth.__getitem__, reverse=True):
        if len(readers[stage]) > len(makers[stage]):
            depth[stage] = min(depth[reader] for reader in readers[stage]) - 1
    return depth


def spaced_apart(wish: Sequence[float]) -> list[float]:
    """Return the heights nearest to `wish`, in least squares, in the same order and at least 1 apart.

    With y_i = wish_i - i this is isotonic regression: pool adjacent violators.
    """
    pools: list[list[float]] = []
    for at, value in enumerate(wish):
        pools.append([value - at])
        while len(pools) > 1 and _mean(pools[-2]) > _mean(pools[-1]):
            last = pools.pop()
            pools[-1] += last
    return [value + at for at, value in enumerate(_mean(pool) for pool in pools for _ in pool)]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
