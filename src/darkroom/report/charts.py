"""Line charts as SVG. Colours come from the style sheet of the page, by class."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from markupsafe import Markup, escape

from darkroom.report.numbers import MINUS, fixed

Points = Sequence[tuple[float, float]]
_TOP, _RIGHT, _BOTTOM, _LEFT = 26.0, 14.0, 40.0, 58.0  # px around the plot
_LETTER, _ROW, _MARK = 7.6, 18.0, 24.0  # px: average width of a letter, height of a row of text, a line in the key


@dataclass(frozen=True)
class Axis:
    """A scale from values to pixels, with its ticks."""

    low: float
    high: float
    start: float  # px at `low`
    end: float  # px at `high`
    log: bool = False

    def __call__(self, value: float) -> float:
        """Return the pixel of a value."""
        low, high = self.low, self.high
        if self.log:
            low, high, value = math.log10(low), math.log10(high), math.log10(value)
        return self.start + (self.end - self.start) * (value - low) / (high - low)

    def ticks(self, most: int) -> list[float]:
        """Return up to about `most` round values on the axis: 1, 2 or 5 times a power of ten."""
        if self.log:
            decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
            for ms in ((1, 2, 5), (1, 3), (1,)):
                every = (m * 10.0**d for d in decades for m in ms)
                ticks = [t for t in every if self.low <= t * (1 + 1e-9) and t <= self.high * (1 + 1e-9)]
                if len(ticks) <= most + 1:
                    return ticks
            return ticks[:: -(-len(ticks) // most)]
        step = round_step((self.high - self.low) / most)
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [at * step for at in range(first, last + 1)]


def round_step(least: float) -> float:
    """Return the smallest of 1, 2, 5 times a power of ten that is at least `least` > 0."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(m * power for m in (1, 2, 5, 10) if m * power >= least * (1 - 1e-9))


def short(value: float) -> str:
    """Return a tick's label: 20k, 1.5M, 0.001, 2."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.6g}{letter}".replace("-", MINUS)
    if value and abs(value) < 1e-5:
        return f"{value:.0e}".replace("e-0", "e-").replace("-", MINUS)
    return fixed(value, 9).rstrip("0").rstrip(".")


def _px(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _vertical(values: Sequence[float], height: float, log: bool) -> Axis:
    """Return the vertical axis: logarithmic if `log` allows it and the values differ by more than a factor of ten."""
    low, high = min(values), max(values)
    if high - low < 1e-6 * max(abs(low), abs(high)):  # constant: ticks would only differ in digits that are not shown
        high = low
    start, end = height - _BOTTOM, _TOP
    if log and low > 0 and high / low > 10:
        return Axis(low / 1.15, high * 1.15, start, end, log=True)
    low, high = min(low, 0.0) if low >= 0 and low < high / 2 else low, high
    room = (high - low) * 0.08 or abs(high) * 0.5 or 1.0
    return Axis(low - (room if low else 0), high + room, start, end)


def _key(names: Mapping[str, str], dots: Collection[str], end: float, taken: float) -> tuple[str, float]:
    """Return the key of the lines, laid out to the width `end`, and its rows: 1 where it fits beside `taken` px."""
    sizes = {name: _MARK + 6 + _LETTER * len(text) for name, text in names.items()}
    at = end - sum(sizes.values()) - 14 * (len(sizes) - 1)
    row = 0 if at > taken + 14 else 1
    parts = []
    for name, text in names.items():
        y = 9 + row * _ROW
        mark = f'<circle cx="{_px(at + _MARK / 2)}" cy="{_px(y)}" r="3"/>' if name in dots else ""
        parts.append(f'<g class="{escape(name)}"><path class="line" d="M{_px(at)} {_px(y)}h{_px(_MARK)}"/>{mark}')
        parts.append(f'<text class="label" x="{_px(at + _MARK + 6)}" y="{_px(y + 4)}">{escape(text)}</text></g>')
        at += sizes[name] + 14
    return "".join(parts), row + 1


def line_chart(
    series: Mapping[str, Points],
    title: str,
    y_label: str,
    width: float,
    height: float,
    x_ticks: int = 5,
    log: bool = True,
    names: Mapping[str, str] | None = None,
    dots: Collection[str] = ("val",),
) -> Markup:
    """Return lines over images seen; points of a series in `dots`, or with a single point, are drawn as dots.

    Args:
        series: class to points (images seen, value); those without a point are not drawn.
        title: a description of the chart for screen readers.
        y_label: the label of the vertical axis.
        width: px.
        height: px.
        x_ticks: the approximate number of ticks of the horizontal axis.
        log: whether the vertical axis may be logarithmic; it is if positive values differ by more than a factor of ten.
        names: the names of classes in the key; by default the class itself.
        dots: classes whose points are also drawn as dots.

    Returns:
        SVG, or an empty text if no series has a point.
    """
    drawn = {name: points for name, points in series.items() if points}
    if not drawn:
        return Markup("")
    values = [value for points in drawn.values() for _, value in points]
    dotted = {name for name, points in drawn.items() if name in dots or len(points) == 1}
    x = Axis(0, max(at for points in drawn.values() for at, _ in points) or 1, _LEFT, width - _RIGHT)
    y = _vertical(values, height, log)
    label = f"{y_label}{' (log)' if y.log else ''}"
    key = ""
    if len(drawn) > 1:
        called = {name: (names or {}).get(name, name) for name in drawn}
        key, rows = _key(called, dotted, x.end, 2 + _LETTER * len(label))
        y = replace(y, end=_TOP + _ROW * (rows - 1))
    parts = [
        f'<svg class="chart" role="img" viewBox="0 0 {_px(width)} {_px(height)}" aria-label="{escape(title)}">',
        f'<text class="label" x="2" y="13">{escape(label)}</text>',
    ]
    for tick in y.ticks(5):
        at = _px(y(tick))
        parts.append(f'<path class="rule" d="M{_px(x.start)} {at}H{_px(x.end)}"/>')
        parts.append(f'<text class="tick end" x="{_px(x.start - 7)}" y="{_px(y(tick) + 4)}">{short(tick)}</text>')
    for tick in x.ticks(x_ticks):
        parts.append(f'<path class="mark" d="M{_px(x(tick))} {_px(y.start)}v4"/>')
        parts.append(f'<text class="tick mid" x="{_px(x(tick))}" y="{_px(y.start + 18)}">{short(tick)}</text>')
    parts.append(f'<path class="axis" d="M{_px(x.start)} {_px(y.start)}H{_px(x.end)}"/>')
    parts.append(f'<text class="label mid" x="{_px((x.start + x.end) / 2)}" y="{_px(height - 4)}">images seen</text>')
    for name, points in reversed(drawn.items()):
        places = [(_px(x(at)), _px(y(value))) for at, value in points]
        line = "M" + "L".join(f"{a} {b}" for a, b in places)
        parts.append(f'<g class="{escape(name)}"><path class="line" d="{line}"/>')
        parts += [f'<circle cx="{a}" cy="{b}" r="3"/>' for a, b in places if name in dotted]
        parts.append("</g>")
    return Markup("".join([*parts, key, "</svg>"]))
