"""The graph of the stages as SVG.

The colours are part of the drawing and readable on white and on black: GitHub shows the drawing as an image, without
the style sheet of a page. The page of the stage `report` replaces them by its own colours.
"""

from itertools import pairwise
from xml.sax.saxutils import escape, quoteattr

from darkroom.dag.graph import Graph
from darkroom.dag.layout import Layout, Node

_LETTER = 8.4  # px, width of a letter of a monospaced font of 14 px
_PADDING, _BOX, _GAP, _PITCH, _MARGIN = 9.0, 40.0, 34.0, 62.0, 6.0  # px
_ARROW = 7.0  # px, length of an arrow's head
_FILL, _BORDER, _TEXT, _LINE = "#e6edf5", "#75879c", "#17222e", "#7f8c9b"
_FONT = "ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono','Liberation Mono',monospace"


def _px(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def draw(graph: Graph) -> str:
    """Return an SVG document with a newline at its end; equal graphs give equal texts."""
    layout = Layout(graph)
    widths = [
        max((len(node) * _LETTER + 2 * _PADDING for node in layer if isinstance(node, str)), default=0.0)
        for layer in layout.layers
    ]
    left: dict[Node, float] = {}
    right: dict[Node, float] = {}
    x = _MARGIN
    for layer, width in zip(layout.layers, widths, strict=True):
        left.update(dict.fromkeys(layer, x))
        right.update(dict.fromkeys(layer, x + width))
        x += width + _GAP
    middle = {node: _MARGIN + _BOX / 2 + _PITCH * height for node, height in layout.height.items()}
    size = x - _GAP + _MARGIN, max(middle.values()) + _BOX / 2 + _MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="dag" role="img" aria-labelledby="dag-title dag-text" '
        f'width="{_px(size[0])}" height="{_px(size[1])}" viewBox="0 0 {_px(size[0])} {_px(size[1])}">',
        '<title id="dag-title">The stages of the DAG</title>',
        f'<desc id="dag-text">{escape(_description(graph))}</desc>',
        f'<g class="edges" fill="none" stroke="{_LINE}" stroke-width="1.5">',
    ]
    parts += [_edge(way, left, right, middle) for way in layout.ways.values()]
    parts += ["</g>", f'<g class="boxes" font-family={quoteattr(_FONT)} font-size="14" text-anchor="middle">']
    for stage in graph.stages:
        parts.append(_box(graph, stage, left[stage], right[stage], middle[stage]))
    return "\n".join([*parts, "</g>", "</svg>"]) + "\n"


def _description(graph: Graph) -> str:
    """Return the edges as text, for readers who cannot see the drawing."""
    sentences = []
    for stage in graph.stages:
        readers = [reader for maker, reader in graph.edges if maker == stage]
        sentences += [f"{stage} leads to {' and '.join(readers)}."] if readers else []
    return " ".join(sentences)


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
    tip_x, tip_y = left[way[-1]], middle[way[-1]]
    head = f"M{_px(tip_x)} {_px(tip_y)}l{_px(-_ARROW)} -4v8z"
    return (
        f'<g data-edge={quoteattr(f"{way[0]} {way[-1]}")}><path d="{"".join(steps)}"/>'
        f'<path class="head" d="{head}" fill="{_LINE}" stroke="none"/></g>'
    )


def _box(graph: Graph, stage: str, left: float, right: float, middle: float) -> str:
    """Draw one stage: its box, its name, and `@part` or the like where it runs once for each entry of a key."""
    centre = _px((left + right) / 2)
    each = graph.spread.get(stage)
    shadow = [2.0] if each else []  # a second box behind the first, for a stage of several runs
    boxes = [
        f'<rect x="{_px(left + by)}" y="{_px(middle - _BOX / 2 + by)}" width="{_px(right - left)}" '
        f'height="{_px(_BOX)}" rx="5" fill="{_FILL}" stroke="{_BORDER}"/>'
        for by in [*(3 * by / 2 for by in shadow), 0.0]
    ]
    name = f'<text x="{centre}" y="{_px(middle + (-1 if each else 5))}" fill="{_TEXT}">{escape(stage)}</text>'
    one = f'<text x="{centre}" y="{_px(middle + 14)}" font-size="12" fill="{_TEXT}">@{each}</text>' if each else ""
    title = f"<title>{escape(graph.stages[stage])}</title>" if graph.stages[stage] else ""
    return f"<g data-stage={quoteattr(stage)}>{title}{''.join(boxes)}{name}{one}</g>"
