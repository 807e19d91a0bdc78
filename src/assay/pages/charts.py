"""Draws the charts of a page as SVG: intervals, differences, learning curves, outcomes.

The numbers come from `result_tables` and `facts`, the labels from the catalogue, the colours from
the page's style. Nothing is computed from runs here; all text is escaped.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from markupsafe import Markup, escape

from assay.judge.intervals import Interval
from assay.pages.facts import Curve
from assay.pages.words import number, score_text


@dataclass(frozen=True, slots=True)
class Scale:
    """A straight map from values to places."""

    low: float
    high: float
    start: float
    """Place of `low`."""
    end: float
    """Place of `high`."""

    def __call__(self, value: float) -> float:
        if self.high == self.low:
            return (self.start + self.end) / 2
        share = (value - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)


def drawing(width: float, height: float, marks: Iterable[Markup], label: str) -> Markup:
    """A complete image, scaled with the page; `label` is its text for screen readers."""
    head = Markup('<svg viewBox="0 0 {} {}" role="img" aria-label="{}">')
    return head.format(_n(width), _n(height), label) + Markup("").join(marks) + Markup("</svg>")


# Drawn thousands of times on a page: what `Markup.format` does, ten times faster.


def line(x1: float, y1: float, x2: float, y2: float, kind: str) -> Markup:
    """A straight line of class `kind`."""
    ends = f'x1="{_n(x1)}" y1="{_n(y1)}" x2="{_n(x2)}" y2="{_n(y2)}"'
    return Markup(f'<line {ends} class="{escape(kind)}"/>')


def rect(x: float, y: float, width: float, height: float, kind: str, title: str = "") -> Markup:
    """A filled rectangle; `title` shows when the reader points at it."""
    place = f'x="{_n(x)}" y="{_n(y)}" width="{_n(width)}" height="{_n(height)}"'
    return Markup(f'<rect {place} class="{escape(kind)}">{_title(title)}</rect>')


def dot(x: float, y: float, radius: float, kind: str, title: str = "") -> Markup:
    """A filled circle."""
    place = f'cx="{_n(x)}" cy="{_n(y)}" r="{_n(radius)}"'
    return Markup(f'<circle {place} class="{escape(kind)}">{_title(title)}</circle>')


def text(x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> Markup:
    """Words with their baseline at y; `anchor` is start, middle or end."""
    place = f'x="{_n(x)}" y="{_n(y)}" class="{escape(kind)}" text-anchor="{escape(anchor)}"'
    return Markup(f"<text {place}>{escape(words)}</text>")


def path(points: Sequence[tuple[float, float] | None], kind: str) -> Markup:
    """A line through points, broken where one is None; a point alone becomes a short dash."""
    commands, pen_up = [], True
    for index, point in enumerate(points):
        if point is None:
            pen_up = True
            continue
        commands.append(f"{'M' if pen_up else 'L'}{_n(point[0])} {_n(point[1])}")
        alone = pen_up and (index + 1 == len(points) or points[index + 1] is None)
        commands += ["h.01"] if alone else []
        pen_up = False
    return Markup('<path d="{}" class="{}"/>').format("".join(commands), kind)


def ticks(low: float, high: float, count: int = 3) -> list[float]:
    """Round values that enclose low to high in about `count` steps of 1, 2 or 5 times a power."""
    if low == high and 0.5 < low <= 1:  # a share ends at 1
        low, high = 0, 1
    elif low == high:
        low, high = (low - 0.5, high + 0.5) if low == 0 else (min(0, 2 * low), max(0, 2 * low))
    raw = (high - low) / count
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(f * power for f in (1, 2, 5, 10) if f * power >= raw * (1 - 1e-9))
    first = math.floor(low / step + 1e-9)
    last = math.ceil(high / step - 1e-9)
    return [round(step * k, 12) for k in range(first, last + 1)]


def _title(words: str) -> Markup:
    return Markup(f"<title>{escape(words)}</title>") if words else Markup("")


def _n(value: float) -> str:
    """A coordinate to two decimals, without trailing zeros."""
    return f"{value:.2f}".rstrip("0").rstrip(".")


WINDOW = 5
"""Steps on either side that the smoothed line averages."""


def interval_bar(score: float, interval: Interval, scale: tuple[float, float]) -> Markup:
    """A score with its interval on a shared scale."""
    x = Scale(*scale, 4, 196)
    shown, low, high = (score_text(v, interval) for v in (score, interval.low, interval.high))
    label = f"{shown} ({low} – {high})"
    marks = [line(4, 11, 196, 11, "grid")]
    marks += [line(x(t), 8, x(t), 14, "grid") for t in ticks(*scale)]
    width = x(interval.high) - x(interval.low)
    marks.append(rect(x(interval.low), 7, max(width, 1), 8, "range", label))
    marks.append(dot(x(score), 11, 4, "mark", label))
    return drawing(200, 22, marks, label)


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """Marks of a learning curve: the steps of checkpoints, and those that were selected."""

    steps: Sequence[int] = ()
    chosen: Sequence[int] = ()


SMALL = (320, 150)


def curve_panel(
    curves: Sequence[Curve],
    label: str,
    write: Callable[[float | None], str],
    checkpoints: Checkpoints = Checkpoints(),
    size: tuple[int, int] = SMALL,
    kinds: Sequence[str] = (),
) -> Markup:
    """Curves on one axis of steps, each of a class of `kinds`; checkpoints are marked on it."""
    (width, height), top = size, 10
    left, right, bottom = (44 if width == SMALL[0] else 58), width - 8, height - 24
    values = [value for curve in curves for value in curve.values if value is not None]
    values += [end for c in curves for each in c.limits if each for end in (each.low, each.high)]
    steps = [step for curve in curves for step in curve.steps]
    marks_y = ticks(min(values), max(values), 3 if height == SMALL[1] else 5)
    x = Scale(min(steps), max(steps), left, right)
    y = Scale(marks_y[0], marks_y[-1], bottom, top)
    marks = []
    for tick in marks_y:
        marks.append(line(left, y(tick), right, y(tick), "grid"))
        marks.append(text(left - 6, y(tick) + 4, write(tick), "tick", "end"))
    marks.append(text(left, height - 6, number(min(steps)), "tick"))
    marks.append(text(right, height - 6, number(max(steps)), "tick", "end"))
    marks += [_checkpoint(x(step), bottom) for step in checkpoints.steps]
    marks += [line(x(step), top, x(step), bottom, "chosen-line") for step in checkpoints.chosen]
    for n, curve in enumerate(curves):
        own = Markup("").join(_curve(curve, x, y, write))
        kind = kinds[n] if kinds else ""
        marks.append(Markup('<g class="series {}">{}</g>').format(kind, own) if kind else own)
    return drawing(width, height, marks, label)


def _curve(
    curve: Curve, x: Scale, y: Scale, write: Callable[[float | None], str]
) -> Iterator[Markup]:
    """Every value with its interval, and their moving average where there are many."""
    yield band(curve, x, y)
    places = [None if v is None else (x(s), y(v)) for s, v in curve.points]
    present = [place for place in places if place is not None]
    many = len(present) > 4 * WINDOW
    yield path(places, "curve faint" if many else "curve")
    if many:
        smooth = zip(curve.steps, moving_average(curve.values), strict=True)
        yield path([None if v is None else (x(s), y(v)) for s, v in smooth], "curve")
    else:
        yield from (dot(*place, 2.5, "mark") for place in present)
    last_step, last = [(s, v) for s, v in curve.points if v is not None][-1]
    yield dot(x(last_step), y(last), 3.5, "mark", write(last))
    lowest = y(y.low)
    for step, value in curve.points:
        if value is None:
            yield text(x(step), lowest - 2, "×", "broken", "middle")


def _checkpoint(place: float, bottom: float) -> Markup:
    corners = Markup('<path d="M{} {}l-3.5 6h7z" class="mark"/>')
    return corners.format(_n(place), _n(bottom + 1))


def band(curve: Curve, x: Callable[[float], float], y: Scale) -> Markup:
    """The intervals of a curve as areas, one for each unbroken range of steps."""
    areas = []
    known = [(step, each) for step, each in zip(curve.steps, curve.limits, strict=True)]
    for has_limits, stretch in groupby(known, lambda pair: pair[1] is not None):
        if not has_limits:
            continue
        limits = [(x(step), y(each.low), y(each.high)) for step, each in stretch if each]
        upper = [f"{_n(place)} {_n(high)}" for place, _, high in limits]
        lower = [f"{_n(place)} {_n(low)}" for place, low, _ in reversed(limits)]
        areas.append("M" + "L".join(upper + lower) + "Z")
    return Markup('<path d="{}" class="band"/>').format("".join(areas)) if areas else Markup("")


def moving_average(values: Sequence[float | None]) -> list[float | None]:
    """The mean of the values present within WINDOW steps of each; None where none is."""
    result: list[float | None] = []
    for index in range(len(values)):
        near = values[max(0, index - WINDOW) : index + WINDOW + 1]
        present = [value for value in near if value is not None]
        result.append(sum(present) / len(present) if present else None)
    return result
