"""The drawings of a page, as SVG: intervals, learning curves, rewards by step, dev scores.

Draws what `result_tables` and `training_history` counted; labels come from the catalogue.
"""

from collections.abc import Callable, Sequence

from markupsafe import Markup

from assay.judge.intervals import Interval
from assay.report.svg import Scale, dot, drawing, line, path, rect, text, ticks
from assay.report.training_history import Curve, DevScore, RewardStep
from assay.report.words import Words, number, percent, score_text

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


def curve_panel(curve: Curve, label: str, write: Callable[[float | None], str]) -> Markup:
    """One metric over the steps: every value, and their moving average where there are many."""
    width, height, left, right, top, bottom = 320, 150, 44, 312, 10, 126
    present = [value for value in curve.values if value is not None]
    marks_y = ticks(min(present), max(present))
    x = Scale(curve.steps[0], curve.steps[-1], left, right)
    y = Scale(marks_y[0], marks_y[-1], bottom, top)
    marks = []
    for tick in marks_y:
        marks.append(line(left, y(tick), right, y(tick), "grid"))
        marks.append(text(left - 6, y(tick) + 4, write(tick), "tick", "end"))
    marks.append(text(left, 144, number(curve.steps[0]), "tick"))
    marks.append(text(right, 144, number(curve.steps[-1]), "tick", "end"))
    many = len(present) > 4 * WINDOW
    raw = [None if v is None else (x(s), y(v)) for s, v in curve.points]
    marks.append(path(raw, "curve faint" if many else "curve"))
    if many:
        smooth = moving_average(curve.values)
        places = [
            None if v is None else (x(s), y(v)) for s, v in zip(curve.steps, smooth, strict=True)
        ]
        marks.append(path(places, "curve"))
    last_step, last = [(s, v) for s, v in curve.points if v is not None][-1]
    marks.append(dot(x(last_step), y(last), 3.5, "mark", write(last)))
    for step, value in curve.points:
        if value is None:
            marks.append(text(x(step), bottom - 2, "×", "broken", "middle"))
    return drawing(width, height, marks, label)


def moving_average(values: Sequence[float | None]) -> list[float | None]:
    """The mean of the values present within WINDOW steps of each; None where none is."""
    result: list[float | None] = []
    for index in range(len(values)):
        near = values[max(0, index - WINDOW) : index + WINDOW + 1]
        present = [value for value in near if value is not None]
        result.append(sum(present) / len(present) if present else None)
    return result


def reward_columns(steps: Sequence[RewardStep], words: Words) -> Markup:
    """One column a step: the shares of its groups by how many of their completions were rewarded.

    Groups in which all or none were rewarded stand at the ends of the colour scale.
    """
    width, height, left, right, top, bottom = 1012, 260, 44, 1008, 10, 232
    size = max(step.group for step in steps)
    y = Scale(0, 1, bottom, top)
    wide = (right - left) / len(steps)
    marks = []
    for index, step in enumerate(steps):
        base = 0.0
        for rewarded in range(size + 1):
            share = step.share(rewarded)
            title = words(
                "chart.reward_cell",
                step=step.step,
                rewarded=rewarded,
                group=step.group,
                share=percent(share),
            )
            place = left + index * wide, y(base + share)
            body = (y(base) - y(base + share), shade(rewarded, size), title)
            marks.append(rect(*place, max(wide - 1, 0.5), *body))
            base += share
    for tick in (0.0, 0.5, 1.0):
        marks.append(line(left, y(tick), right, y(tick), "grid over"))
        marks.append(text(left - 6, y(tick) + 4, f"{tick:.0%}", "tick", "end"))
    marks.append(text(left, 250, number(steps[0].step), "tick"))
    marks.append(text(right, 250, number(steps[-1].step), "tick", "end"))
    marks.append(text((left + right) / 2, 250, words("chart.step"), "tick", "middle"))
    return drawing(width, height, marks, words("chart.rewards"))


def shade(rewarded: int, size: int) -> str:
    """The class of the colour for `rewarded` of `size`: 0 none, 8 all, between them by share."""
    if rewarded in (0, size):
        return f"shade{8 if rewarded else 0}"
    return f"shade{1 + round(6 * (rewarded - 1) / max(size - 2, 1))}"


def dev_chart(scores: Sequence[DevScore], words: Words) -> Markup:
    """Scores on the items that choose, by step, with intervals; the chosen one is marked."""
    width, height, left, right, top, bottom = 1012, 230, 44, 1008, 16, 192
    low, high = min(s.interval.low for s in scores), max(s.interval.high for s in scores)
    marks_y = ticks(low, high)
    x = Scale(scores[0].step, scores[-1].step, left + 40, right - 70)
    y = Scale(marks_y[0], marks_y[-1], bottom, top)
    marks = []
    for tick in marks_y:
        marks.append(line(left, y(tick), right, y(tick), "grid"))
        marks.append(text(left - 6, y(tick) + 4, f"{tick:.0%}", "tick", "end"))
    for score in scores:
        place = x(score.step)
        marks.append(line(place, y(score.interval.low), place, y(score.interval.high), "whisker"))
        kind = "mark chosen" if score.chosen else "mark"
        marks.append(dot(place, y(score.score), 6 if score.chosen else 4, kind))
        label = percent(score.score)
        marks.append(text(place + 9, y(score.score) + 4, label, "label"))
        marks.append(text(place, 210, number(score.step), "tick", "middle"))
        if score.chosen:
            marks.append(text(place, 226, words("chart.chosen"), "label", "middle"))
    return drawing(width, height, marks, words("chart.dev"))
