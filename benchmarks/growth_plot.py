"""Draws the three series of `growth` side by side as one SVG file for the manual.

Missing cells are left out of a curve; a series without any cell is an empty panel.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from cells import load_results
from markupsafe import Markup

from assay.report.charts import Scale, dot, drawing, line, path, text, ticks

WIDTH, HEIGHT, PANEL = 1012, 250, 330
LEFT, RIGHT, TOP, BOTTOM = 46, 250, 34, 206
STYLE = """<style>
text{font:11px system-ui,sans-serif;fill:#5c636b}.title{font-size:12.5px;font-weight:600}
.grid{stroke:#9aa0a6;stroke-opacity:.35}.c0{stroke:#0b6e69}.c1{stroke:#d98f3e}.c2{stroke:#8b74b8}
path{fill:none;stroke-width:2}.dashed{stroke-dasharray:4 4;stroke-opacity:.7;stroke-width:1.4}
.d0{fill:#0b6e69}.d1{fill:#d98f3e}.d2{fill:#8b74b8}
@media (prefers-color-scheme:dark){text{fill:#9aa3ab}}
</style>"""


@dataclass(frozen=True)
class Panel:
    """One chart: which series, and which of its numbers over what."""

    series: str
    title: str
    axis: str
    curves: Mapping[str, str]
    """Names of numbers in a result, and their labels."""
    fitted: tuple[str, ...] = ()
    """Numbers through which a straight line is drawn."""


COSTS = {"rollout_cpu_seconds": "rollout", "update_cpu_seconds": "update"}
PANELS = (
    Panel("group", "CPU-seconds, prompt 1024/32", "completions", COSTS, tuple(COSTS)),
    Panel("prompt", "CPU-seconds, 8 completions of 32", "prompt tokens", COSTS),
    Panel(
        "turns",
        "prompt tokens in a rollout of 4",
        "turns",
        {
            "prefilled_tokens": "computed",
            "distinct_tokens": "distinct",
            "context_tokens": "all contexts",
        },
    ),
)


def series(name: str) -> list[tuple[int, dict[str, Any]]]:
    """Size and result of a series' cells by size, of the processor that has measured most."""
    results = [result for result in load_results("growth") if result["cell"]["what"] == name]
    counts = Counter(result["machine"]["processor"] for result in results)
    most = max(counts, key=lambda processor: counts[processor], default=None)
    found = [result for result in results if result["machine"]["processor"] == most]
    return sorted(((result["cell"][name], result) for result in found), key=lambda pair: pair[0])


def fit(sizes: Sequence[float], values: Sequence[float]) -> tuple[float, float, float]:
    """Slope and intercept of the least-squares line, and the share of variance it explains."""
    slope, start = np.polyfit(sizes, values, 1)
    left = np.asarray(values) - (start + slope * np.asarray(sizes))
    spread = np.asarray(values) - np.mean(values)
    return float(slope), float(start), 1 - float(left @ left) / float(spread @ spread)


def plot() -> str:
    """The file's text."""
    marks = [Markup(STYLE)]
    for place, panel in enumerate(PANELS):
        group = Markup('<g transform="translate({} 0)">').format(place * PANEL)
        marks += [group, *panel_marks(panel), Markup("</g>")]
    image = str(drawing(WIDTH, HEIGHT, marks, "cost of a step as its sizes grow"))
    return image.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1) + "\n"


def panel_marks(panel: Panel) -> list[Markup]:
    """The marks of one chart."""
    marks = [text(LEFT, 16, panel.title, "title"), text(RIGHT, 244, panel.axis, "", "end")]
    results = series(panel.series)
    if len(results) < 2:
        return [*marks, text(LEFT, 100, "not run")]
    sizes = [size for size, _ in results]
    marks_y = ticks(0.0, max(result[name] for _, result in results for name in panel.curves))
    x, y = Scale(0, sizes[-1], LEFT, RIGHT), Scale(0, marks_y[-1], BOTTOM, TOP)
    for tick in marks_y:
        marks.append(line(LEFT, y(tick), RIGHT, y(tick), "grid"))
        marks.append(text(LEFT - 6, y(tick) + 4, f"{tick:g}", "", "end"))
    # The smallest sizes lie too close for a label each.
    marks += [text(x(size), 224, str(size), "", "middle") for size in sizes[-3:]]
    places = label_places([y(results[-1][1][name]) for name in panel.curves])
    for number, (name, label) in enumerate(panel.curves.items()):
        values = [result[name] for _, result in results]
        points = [(x(size), y(value)) for size, value in zip(sizes, values, strict=True)]
        marks.append(path(points, f"c{number}"))
        marks += [dot(*point, 3, f"d{number}") for point in points]
        marks.append(text(RIGHT + 8, places[number] + 4, label))
        if name in panel.fitted:
            slope, start, _ = fit(sizes, values)
            ends = [(x(size), y(start + slope * size)) for size in (0, sizes[-1])]
            marks.append(path(ends, f"c{number} dashed"))
    return marks


def label_places(wanted: Sequence[float]) -> list[float]:
    """Places near those wanted, at least a line apart, from the bottom up."""
    places: dict[int, float] = {}
    last = float("inf")
    for index in sorted(range(len(wanted)), key=lambda index: -wanted[index]):
        last = places[index] = min(wanted[index], last - 13)
    return [places[index] for index in range(len(wanted))]


def save_plot(file: Path) -> Path:
    """Write the SVG file."""
    file.write_text(plot(), encoding="utf-8")
    return file
