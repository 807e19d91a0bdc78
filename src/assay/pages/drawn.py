"""Draws intervals, curves and histograms in characters, for terminals and mail.

Intervals are plain ASCII, one column per character in every font. They stand before their labels,
so that labels of any script leave them aligned. The caller escapes the labels.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from assay.compare.table import Line
from assay.judge.intervals import Interval
from assay.judge.verdict import Comparison
from assay.pages.charts import Scale
from assay.pages.words import difference_text, score_text, visible

WIDTH = 49
"""Columns of a drawn interval; odd, so that zero can stand in the middle."""
CURVE_WIDTH = 48
HEIGHTS = "▁▂▃▄▅▆▇█"
BROKEN = "×"
"""Marks a value that is not finite."""


@dataclass(frozen=True, slots=True)
class Bar:
    """A value with its interval and label."""

    value: float
    interval: Interval
    shown: str
    """The value with its unit."""
    label: str


def score_bars(lines: Sequence[tuple[str, Line]]) -> list[Bar]:
    """The scores of labelled lines."""
    return [
        Bar(line.score, line.interval, score_text(line.score, line.interval), label)
        for label, line in lines
    ]


def score_plot(bars: Sequence[Bar], scale: tuple[float, float]) -> str:
    """Scores with their intervals, one a line, between the ends of the scale."""
    return _plot(bars, scale, [score_text(end, bars[0].interval) for end in scale] if bars else [])


def difference_plot(found: Sequence[tuple[str, Comparison]], scale: tuple[float, float]) -> str:
    """Differences with their intervals beside zero and the margin of equivalence."""
    bars = [
        Bar(c.difference, c.interval, difference_text(c.difference, c.interval), label)
        for label, c in found
    ]
    margins = [c.margin for _, c in found]
    ends = [difference_text(end, bars[0].interval) for end in scale] if bars else []
    return _plot(bars, scale, ends, margins)


def _plot(
    bars: Sequence[Bar],
    scale: tuple[float, float],
    ends: Sequence[str],
    margins: Sequence[float | None] = (),
) -> str:
    """A line with the ends of the scale, then one for each bar; nothing without bars."""
    if not bars:
        return ""
    low, high = ends
    wide = max(len(bar.shown) for bar in bars)
    rows = [low + high.rjust(WIDTH - len(low))]
    for bar, margin in zip(bars, margins or [None] * len(bars), strict=True):
        label = " ".join(visible(bar.label).split())
        drawn = interval_line(bar.value, bar.interval, scale, margin)
        rows.append(f"{drawn}  {bar.shown.rjust(wide)}  {label}")
    return "\n".join(rows)


def interval_line(
    value: float, interval: Interval, scale: tuple[float, float], margin: float | None = None
) -> str:
    """`..[==o==]...`: an interval and its value; with a `margin` also zero `|` and its band `:`."""
    place = Scale(*scale, 0, WIDTH - 1)

    def column(at: float) -> int:
        return min(max(round(place(at)), 0), WIDTH - 1)

    marks = ["."] * WIDTH
    if margin is not None:
        band = range(column(-margin), column(margin) + 1)
        marks = [":" if index in band else mark for index, mark in enumerate(marks)]
        marks[column(0.0)] = "|"
    low, high = column(interval.low), column(interval.high)
    marks[low : high + 1] = "=" * (high + 1 - low)
    marks[low], marks[high] = "[", "]"
    marks[column(value)] = "o"
    return "".join(marks)


def curve_line(values: Sequence[float | None]) -> str:
    """A metric over its steps as a row of blocks, the lowest value the lowest block.

    If there are more steps than columns, a block is the mean of its finite steps, or a cross if it
    has none.
    """
    count = min(len(values), CURVE_WIDTH)
    bounds = [round(index * len(values) / count) for index in range(count + 1)]
    means = [_mean(values[start:end]) for start, end in pairwise(bounds)]
    known = [mean for mean in means if mean is not None]
    if not known:
        return BROKEN * count
    height = Scale(min(known), max(known), 0, len(HEIGHTS) - 1)
    return "".join(BROKEN if mean is None else HEIGHTS[round(height(mean))] for mean in means)


def histogram_line(counts: Sequence[int], edges: Sequence[float]) -> str:
    """One block for each bin, between the outer edges; an empty bin is a blank.

    A block's height is its count's share of the largest, so that any count shows.
    """
    most = max(counts)
    bars = "".join(
        HEIGHTS[-(-count * len(HEIGHTS) // most) - 1] if count else " " for count in counts
    )
    return f"{edges[0]:,.0f} |{bars}| {edges[-1]:,.0f}"


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
