"""Charts lie within their frame and put larger values higher."""

import re
import xml.etree.ElementTree as ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from darkroom.report.charts import Axis, line_chart, short

WIDTH, HEIGHT = 460.0, 220.0
POINT = st.tuples(st.integers(0, 10**10), st.floats(-1e4, 1e4).filter(lambda v: not v or abs(v) > 1e-9))


def places(chart: str) -> list[tuple[float, float]]:
    """Return the points of the first line in a chart."""
    found = re.search(r'class="line" d="M([^"]+)"', chart)
    assert found
    return [(float(x), float(y)) for x, y in (piece.split() for piece in found[1].split("L"))]


@given(st.lists(POINT, min_size=1, max_size=20), st.lists(POINT, max_size=5))
def test_lines_stay_in_the_frame(train: list[tuple[float, float]], val: list[tuple[float, float]]) -> None:
    chart = line_chart({"train": train, "val": val}, "title", "loss", WIDTH, HEIGHT)
    ElementTree.fromstring(chart)
    numbers = [float(x) for x in re.findall(r'(?: [xy]|c[xy])="(-?[0-9.]+)"', chart)]
    assert all(0 <= value <= WIDTH for value in numbers)
    for x, y in places(chart):
        assert 58 <= x <= WIDTH and 0 <= y <= HEIGHT - 40 + 0.05


@pytest.mark.parametrize("log", [False, True])
def test_a_larger_value_is_higher_and_a_later_one_further_right(log: bool) -> None:
    chart = line_chart({"train": [(10, 5.0), (20, 1.0), (30, 0.01)]}, "title", "loss", WIDTH, HEIGHT, log=log)
    xs, ys = zip(*places(chart), strict=True)
    assert list(xs) == sorted(xs) and list(ys) == sorted(ys)
    assert ("(log)" in chart) == log
    # On a logarithmic axis the way from 1 to 0.01 is longer than that from 5 to 1; on a linear one it is shorter.
    assert (ys[2] - ys[1] > ys[1] - ys[0]) == log


def test_no_point_is_no_chart_and_one_point_is_a_dot() -> None:
    assert line_chart({"train": [], "val": []}, "title", "loss", WIDTH, HEIGHT) == ""
    assert line_chart({"train": [(5, 1.0)]}, "title", "loss", WIDTH, HEIGHT).count("<circle") == 1


@pytest.mark.parametrize(("names", "row"), [(["a", "b"], 0), (["long name"] * 4, 1)])
def test_the_key_is_whole_and_off_the_plot(names: list[str], row: int) -> None:
    called = {f"line-{number}": name for number, name in enumerate(names)}
    series = {name: [(0, 1.0), (5, 2.0)] for name in called}
    chart = line_chart(series, "title", "validation loss", WIDTH, HEIGHT, names=called)
    keys = re.findall(r'<text class="label" x="([0-9.-]+)" y="([0-9.]+)">(?!validation)([^<]+)<', chart)
    assert [text for _, _, text in keys] == names
    assert {float(y) for _, y, _ in keys} == {13.0 + 18 * row}
    assert all(float(x) > 0 and float(x) + 7.6 * len(text) <= WIDTH for x, _, text in keys)
    assert min(y for _, y in places(chart)) > 26 + 18 * row - 0.1


@given(st.floats(-1e3, 1e3), st.floats(1e-3, 1e3), st.integers(2, 8))
def test_ticks_of_a_linear_axis(low: float, length: float, most: int) -> None:
    ticks = Axis(low, low + length, 0, 100).ticks(most)
    assert 1 <= len(ticks) <= most + 1
    assert all(low - 1e-6 * length <= tick <= low + length * (1 + 1e-6) for tick in ticks)


@given(st.floats(-6, 3), st.floats(1, 8))
def test_ticks_of_a_logarithmic_axis(low: float, decades: float) -> None:
    ticks = Axis(10**low, 10 ** (low + decades), 0, 100, log=True).ticks(5)
    assert 1 <= len(ticks) <= 6 and ticks == sorted(set(ticks))


def test_short_labels() -> None:
    assert [short(v) for v in (0, 0.001, 2, 20_000, 1_500_000, -3000)] == ["0", "0.001", "2", "20k", "1.5M", "\u22123k"]
