"""The picture of the DAG: its edges are dvc.yaml's, its boxes do not overlap, and a stale one is found."""

import re
import sys
import xml.etree.ElementTree as ElementTree
from itertools import pairwise
from pathlib import Path
from typing import Any

import networkx as nx
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from darkroom.errors import DarkroomError
from darkroom.params.stage import resolve

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "workflow"))

from draw_dag import Graph, Layout, draw, main, read_graph  # noqa: E402

SVG = "{http://www.w3.org/2000/svg}"


def read(name: str) -> dict[str, Any]:
    return dict(yaml.safe_load((ROOT / name).read_text()))


def stages(edges: list[tuple[int, int]], count: int) -> dict[str, Any]:
    """Return a dvc.yaml whose stage i writes out/i and reads what the edges say."""
    return {
        "stages": {
            f"s{i}": {"cmd": "", "deps": [f"out/{a}" for a, b in edges if b == i], "outs": [{f"out/{i}": {}}]}
            for i in range(count)
        }
    }


@st.composite
def dags(draw_value: st.DrawFn) -> tuple[list[tuple[int, int]], int]:
    count = draw_value(st.integers(1, 9))
    pairs = [(a, b) for b in range(count) for a in range(b)]
    return (draw_value(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []), count


def test_edges_are_those_that_dvc_yaml_implies() -> None:
    dvc, params = read("dvc.yaml"), read("params.yaml")
    reads: dict[str, list[str]] = {}
    writes: dict[str, list[str]] = {}
    del dvc["stages"]["code"]  # before all others, and not drawn
    for name, stage in dvc["stages"].items():
        entry = stage.get("do", stage)
        made = [*entry.get("outs", []), *entry.get("metrics", []), *entry.get("plots", [])]
        outs = [out if isinstance(out, str) else next(iter(out)) for out in made]
        over = params
        for key in stage.get("foreach", "").strip("${}").split("."):
            over = over[key] if key else {"": {}}
        copies = [{**params, "key": key, "item": item} for key, item in over.items()]
        reads[name] = [resolve(str(dep), names) for names in copies for dep in entry.get("deps", [])]
        writes[name] = [resolve(out, names) for names in copies for out in outs]
    everything = nx.DiGraph()
    for maker, outs in writes.items():
        for reader, deps in reads.items():
            if any(f"{out}/".startswith(f"{dep}/") or f"{dep}/".startswith(f"{out}/") for out in outs for dep in deps):
                everything.add_edge(maker, reader)
    graph = read_graph(params, read("dvc.yaml"))
    assert set(graph.edges) == set(nx.transitive_reduction(everything).edges)
    assert len(graph.edges) < everything.number_of_edges()
    assert list(graph.stages) == list(dvc["stages"])
    assert graph.spread == {
        "ingest": "part",
        "encode_latents": "part",
        "embed_clip": "part",
        "train_decoder": "unet",
    }


@given(dags())
def test_reduction_of_any_dag_is_networkx_s(made: tuple[list[tuple[int, int]], int]) -> None:
    edges, count = made
    oracle = nx.DiGraph([(f"s{a}", f"s{b}") for a, b in edges])
    graph = read_graph({}, stages(edges, count))
    assert set(graph.edges) == set(nx.transitive_reduction(oracle).edges)


@given(dags())
def test_boxes_stand_apart_and_edges_lead_right(made: tuple[list[tuple[int, int]], int]) -> None:
    graph = read_graph({}, stages(*made))
    layout = Layout(graph)
    for layer in layout.layers:
        heights = [layout.height[node] for node in layer]
        assert all(below - above >= 1 for above, below in pairwise(heights))
    at = {node: index for index, layer in enumerate(layout.layers) for node in layer}
    for way in layout.ways.values():
        assert [at[node] for node in way] == list(range(at[way[0]], at[way[0]] + len(way)))
    assert min(layout.height.values()) == 0


def test_what_several_read_stands_beside_its_first_reader() -> None:
    """A chain of five, and a stage of its own that the last two read: one long edge to it would be drawn as two."""
    layout = Layout(read_graph({}, stages([(0, 1), (1, 2), (2, 3), (2, 4), (5, 3), (5, 4)], 6)))
    assert [{node for node in layer if isinstance(node, str)} for layer in layout.layers] == [
        *({"s0"}, {"s1"}, {"s2", "s5"}, {"s3", "s4"})
    ]


def test_drawing_shows_every_stage_and_edge_and_escapes_names() -> None:
    graph = Graph({"a<b": "one & two", "c": "", "d": ""}, {"c": "part"}, (("a<b", "c"), ("c", "d")))
    text = draw(graph)
    root = ElementTree.fromstring(text)
    boxes = {g.get("data-stage"): g for g in root.iter(f"{SVG}g") if g.get("data-stage")}
    assert list(boxes) == ["a<b", "c", "d"]
    assert [g.get("data-edge") for g in root.iter(f"{SVG}g") if g.get("data-edge")] == ["a<b c", "c d"]
    assert [t.text for t in boxes["c"].iter(f"{SVG}text")] == ["c", "@part"]
    assert [t.text for t in boxes["a<b"].iter(f"{SVG}title")] == ["one & two"]
    assert text == draw(graph)


def test_names_fit_into_their_boxes() -> None:
    root = ElementTree.fromstring(draw(read_graph(read("params.yaml"), read("dvc.yaml"))))
    width, height = (float(str(root.get(name))) for name in ("width", "height"))
    for group in (g for g in root.iter(f"{SVG}g") if g.get("data-stage")):
        for box in group.iter(f"{SVG}rect"):
            x, y, w, h = (float(str(box.get(name))) for name in ("x", "y", "width", "height"))
            assert x >= 0 and x + w <= width and y >= 0 and y + h <= height
            assert w >= 0.6 * 14 * len(str(group.get("data-stage")))  # monospaced: 0.6 em a letter


def test_a_circle_is_named() -> None:
    with pytest.raises(DarkroomError, match="s0 → s1 → s0"):
        read_graph({}, stages([(0, 1), (1, 0)], 2))


def test_no_stages_is_one_sentence() -> None:
    with pytest.raises(DarkroomError, match="no stages"):
        read_graph({}, {})


def test_committed_picture_is_up_to_date_and_a_stale_one_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(*words: str) -> str | None:
        monkeypatch.setattr(sys, "argv", ["draw_dag.py", *words])
        return main()

    monkeypatch.chdir(tmp_path)
    for name in ("params.yaml", "dvc.yaml", "docs/dag.svg"):
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_text((ROOT / name).read_text())
    assert run() is None
    text = Path("dvc.yaml").read_text()
    Path("dvc.yaml").write_text(re.sub("desc: Write the page.", "desc: Write a page.", text))
    assert "does not match dvc.yaml" in (run() or "")
    assert run("--write") is None and run() is None
    Path("docs/dag.svg").unlink()
    assert run() is not None
