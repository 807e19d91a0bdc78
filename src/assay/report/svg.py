"""Small pieces of SVG: marks, scales and ticks. Colours are classes that the page's style sets.

Knows nothing of runs. Every text that goes in is escaped here.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape


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
    """A whole image, which scales with the page; `label` says what it shows to those who listen."""
    head = Markup('<svg viewBox="0 0 {} {}" role="img" aria-label="{}">')
    return head.format(_n(width), _n(height), label) + Markup("").join(marks) + Markup("</svg>")


def line(x1: float, y1: float, x2: float, y2: float, kind: str) -> Markup:
    """A straight line of class `kind`."""
    place = Markup('<line x1="{}" y1="{}" x2="{}" y2="{}" class="{}"/>')
    return place.format(_n(x1), _n(y1), _n(x2), _n(y2), kind)


def rect(x: float, y: float, width: float, height: float, kind: str, title: str = "") -> Markup:
    """A filled rectangle; `title` shows when the reader points at it."""
    place = Markup('<rect x="{}" y="{}" width="{}" height="{}" class="{}">{}</rect>')
    return place.format(_n(x), _n(y), _n(width), _n(height), kind, _title(title))


def dot(x: float, y: float, radius: float, kind: str, title: str = "") -> Markup:
    """A filled circle."""
    place = Markup('<circle cx="{}" cy="{}" r="{}" class="{}">{}</circle>')
    return place.format(_n(x), _n(y), _n(radius), kind, _title(title))


def text(x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> Markup:
    """Words with their baseline at y; `anchor` is start, middle or end."""
    place = Markup('<text x="{}" y="{}" class="{}" text-anchor="{}">{}</text>')
    return place.format(_n(x), _n(y), kind, anchor, words)


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
    if low == high:
        low, high = (low - 0.5, high + 0.5) if low == 0 else (min(0, 2 * low), max(0, 2 * low))
    raw = (high - low) / count
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(f * power for f in (1, 2, 5, 10) if f * power >= raw * (1 - 1e-9))
    first = math.floor(low / step + 1e-9)
    last = math.ceil(high / step - 1e-9)
    return [round(step * k, 12) for k in range(first, last + 1)]


def _title(words: str) -> Markup:
    return Markup("<title>{}</title>").format(escape(words)) if words else Markup("")


def _n(value: float) -> str:
    """A place to two decimals, without idle zeros."""
    return f"{value:.2f}".rstrip("0").rstrip(".")
